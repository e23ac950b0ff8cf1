"""Nouns: blocks, KV groups, token budget, extra slots.

vLLM's own arithmetic on an engine: how much of the pool and of a step's budget it needs at the
least, and how its layers make groups. A figure of ours that differs would let through engines that
vLLM refuses or starves.
"""

from collections import Counter

from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks hold `tokens` tokens."""
    return -(-tokens // block_size)


def least_blocks(engine: Engine) -> int:
    """Return the smallest pool, in blocks, that vLLM takes for requests of max_model_len."""
    blocks = blocks_for_all(engine, engine.max_model_len)
    if engine.model == "encoder-decoder":  # cross attention's
        blocks += blocks_for(engine.max_num_encoder_input_tokens, engine.block_size)
    return blocks


def blocks_for_all(engine: Engine, tokens: int) -> int:
    """Return the most blocks that a request of `tokens` tokens holds at a time, in all groups."""
    groups = engine.groups or (Group("full"),)
    return sum(_group_blocks(engine, group, tokens) for group in groups)


def _group_blocks(engine: Engine, group: Group, tokens: int) -> int:
    """Return the most blocks that a request holds in one KV group at a time.

    Source: `max_memory_usage_bytes` of vLLM's KV specs: a window moves through a block more than
    it and the tokens in flight fill; a recurrent state has one from before, one per draft and
    one for a checkpoint.
    """
    if group.kind == "mamba":
        return 2 + engine.num_speculative_tokens + (engine.prefill_checkpoint_alignment > 0)
    if group.kind == "full":
        return blocks_for(tokens, engine.block_size)
    batches = engine.pipeline_parallel_size + engine.async_scheduling
    in_flight = group.window - 1 + batches * engine.max_num_batched_tokens
    return blocks_for(min(tokens, in_flight), engine.block_size) + 1


def kept_apart(groups: tuple[Group, ...]) -> bool:
    """Return whether vLLM makes as many groups of as many layers, one of each.

    It puts as many equal layers into each group as there are of the rarest kind.
    """
    counts = Counter(groups).values()
    return not groups or (min(counts) == 1 and (len(counts) > 1 or len(groups) == 1))


def least_token_budget(engine: Engine) -> int:
    """Return the smallest `max_num_batched_tokens` with which every request can run.

    A token a seat, a whole prompt without chunked prefill, room for a verified draft window, and
    what the drafter adds for each seat. Source: `SchedulerConfig.verify_max_model_len` and
    `VllmConfig._set_max_num_scheduled_tokens`. vLLM itself does not ask for the last one without
    chunked prefill, and then never schedules a long prompt (docs/findings.md).
    """
    width = max(engine.num_speculative_tokens, engine.canvas_length)
    least = max(engine.max_num_seqs, width + 2)
    if not engine.chunked_prefill:
        least = max(least, engine.max_model_len)
    return least + engine.max_num_seqs * extra_slots(engine)


def extra_slots(engine: Engine) -> int:
    """Return the batch slots that drafting adds to each request's share, in tokens.

    Source: vLLM's `SpeculativeConfig.max_num_new_slots_for_drafting` as of PR #51256.
    """
    width = engine.num_speculative_tokens
    if not width:
        return 0
    return {"draft_model": 1, "dflash": width}.get(engine.spec_method, 0)
