"""Nouns: the KV groups' dimension, mixtures.

Layers of several kinds keep their KV in tables of their own that share one pool: windows let go of
what they have passed, recurrent states exist only where a chunk ended, so groups disagree on what
is cached. Which chunk ends where decides everything, and pools that hold little more than the
longest request make it happen.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.fitting import has_group
from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.sizing import least_blocks
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.dimensions.group_motifs import GROUP_MOTIFS
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.repair import repair_engine

FULL, MAMBA = Group("full"), Group("mamba")
SLIDING = Group("sliding_window", 1)  # stands for any window
# What models have: mostly one full group beside the others.
MIXTURES = (
    (FULL, SLIDING), (FULL, SLIDING), (FULL, SLIDING), (FULL, SLIDING, SLIDING),
    (FULL, FULL, SLIDING), (SLIDING,), (SLIDING, SLIDING),
    (FULL, MAMBA), (FULL, MAMBA), (FULL, MAMBA), (FULL, MAMBA, MAMBA), (FULL, FULL, MAMBA),
    (MAMBA,), (MAMBA,), (FULL, MAMBA, SLIDING),
)  # fmt: skip


def _window(rng: Random, engine: Engine) -> int:
    """Return a window in tokens: around a block, a few blocks or the draft window, or beyond."""
    size = engine.block_size
    edge = rng.choice((1, 2, 1 + engine.num_speculative_tokens, size, size, 2 * size, 3 * size))
    return max(1, edge + rng.choice((0, 0, 1, -1, 2, size // 2)))


def _mixture(rng: Random, engine: Engine) -> tuple[Group, ...]:
    windows = [_window(rng, engine) for _ in range(2)]
    groups = []
    for group in rng.choice(MIXTURES):
        is_sliding = group.kind == "sliding_window"
        groups.append(Group(group.kind, rng.choice(windows)) if is_sliding else group)
    rng.shuffle(groups)
    return tuple(groups)


def _unit(rng: Random, engine: Engine) -> int:
    """Return a prefix match unit, which makes hits finer than blocks where there are states."""
    wanted = 0.4 if has_group(engine, "mamba") else 0.1
    if len(engine.groups) < 2 or rng.random() > wanted:
        return 0
    size, width = engine.block_size, engine.num_speculative_tokens
    drafts = 1 << width.bit_length() - 1 if width else size  # the most that a step's drafts hold
    return rng.choice((size, size // 2, size // 4, size // 8, drafts, drafts))


def _retention(rng: Random, engine: Engine) -> int | None:
    """Return a retention interval: mostly the default, else all, or one state in a few blocks."""
    if rng.random() < 0.6:
        return 0
    return None if rng.random() < 0.3 else engine.block_size * rng.choice((1, 2, 2, 3, 4))


def _shape(rng: Random, engine: Engine) -> Engine:
    engine = repair_engine(replace(engine, groups=_mixture(rng, engine)))
    engine = replace(
        engine, prefix_match_unit=_unit(rng, engine),
        prefix_cache_retention_interval=_retention(rng, engine),
    )  # fmt: skip
    if has_group(engine, "mamba"):
        engine = repair_engine(_for_states(rng, engine))
    return _with_pool(rng, engine)


def _for_states(rng: Random, engine: Engine) -> Engine:
    """Return the engine with chunks that mostly reach a block boundary."""
    size = engine.block_size
    budget, threshold = engine.max_num_batched_tokens, engine.long_prefill_token_threshold
    drafting = 1 + 2 * engine.num_speculative_tokens  # what some drafters add to a chunk
    if budget < size + drafting and rng.random() < 0.9:
        budget = size * rng.randint(1, 3) + drafting + rng.choice((0, 0, 3, size - 1))
    if 0 < threshold < size and rng.random() < 0.9:
        threshold = rng.choice((0, size, size + 1, 2 * size))
    engine = replace(
        engine, max_num_batched_tokens=budget, long_prefill_token_threshold=threshold,
        prefix_caching=True, chunked_prefill=True,
    )  # fmt: skip
    return _with_checkpoints(rng, engine)


def _with_checkpoints(rng: Random, engine: Engine) -> Engine:
    """Return the engine with a backend that saves states on its way, or not; with junctions."""
    alignment = rng.choice((0, 0, 0, 1, 1, engine.prefix_match_unit, 16))
    engine = replace(engine, prefill_checkpoint_alignment=alignment)
    if not engine.prefix_match_unit or rng.random() < 0.5:
        return replace(engine, mamba_shared_prefix_checkpoint=False)
    # Only drafters that read ahead have junctions.
    method = rng.choice(("eagle", "mtp", engine.spec_method))
    width = engine.num_speculative_tokens or rng.choice((1, 2, 3))
    return replace(
        engine, mamba_shared_prefix_checkpoint=True, spec_method=method,
        num_speculative_tokens=width,
    )  # fmt: skip


def _with_pool(rng: Random, engine: Engine) -> Engine:
    """Return the engine with a pool for one longest request and a little, or for a few.

    Mostly with what a prefix hit and a step in flight may hold besides: without it, a release that
    counts too few blocks for a request preempts it for ever, and nothing else is seen.
    """
    least = least_blocks(engine) + 1
    if rng.random() < 0.8:
        least += 2 * sum(group.kind == "mamba" for group in engine.groups)
    if rng.random() < 0.6:
        more = rng.choice((0, 1, 2, 3, 4, least // 4, least // 2))
        return replace(engine, num_blocks=least + more)
    return replace(engine, num_blocks=least * rng.randint(1, 4) + rng.randint(0, 6))


# -- edits -----------------------------------------------------------------------------------------


def change_groups(draft: Draft, rng: Random) -> None:
    """Deal the groups anew."""
    draft.engine = _shape(rng, draft.engine)


def drop_group(draft: Draft, rng: Random) -> None:
    """Take a group away: what several have to agree on, one decides alone."""
    groups = list(draft.engine.groups)
    if len(groups) > 1:
        del groups[rng.randrange(len(groups))]
        draft.engine = replace(draft.engine, groups=tuple(groups))


def change_group_window(draft: Draft, rng: Random) -> None:
    """Move a window by a token, a block or to an edge."""
    groups = list(draft.engine.groups)
    index = rng.randrange(len(groups)) if groups else 0
    if groups and groups[index].kind == "sliding_window":
        by = rng.choice((-1, 1, -draft.engine.block_size, draft.engine.block_size))
        window = groups[index].window + by
        if rng.random() < 0.4:
            window = _window(rng, draft.engine)
        groups[index] = Group("sliding_window", max(1, window))
        draft.engine = replace(draft.engine, groups=tuple(groups))


def change_unit(draft: Draft, rng: Random) -> None:
    """Make prefix hits finer or coarser."""
    draft.engine = replace(draft.engine, prefix_match_unit=_unit(rng, draft.engine))


def change_retention(draft: Draft, rng: Random) -> None:
    """Keep more or fewer states of what was computed."""
    interval = _retention(rng, draft.engine)
    draft.engine = replace(draft.engine, prefix_cache_retention_interval=interval)


def change_checkpoints(draft: Draft, rng: Random) -> None:
    """Let the states of a chunk be saved otherwise."""
    draft.engine = _with_checkpoints(rng, draft.engine)


def change_shared_pool(draft: Draft, rng: Random) -> None:
    """Give the groups another pool."""
    draft.engine = _with_pool(rng, draft.engine)


KV_GROUPS = Dimension(
    "KV groups", 10, _shape, lambda engine: bool(engine.groups), motifs=GROUP_MOTIFS,
    edits=(change_groups, change_group_window, drop_group, change_unit, change_shared_pool,
           change_retention, change_checkpoints),
)  # fmt: skip
