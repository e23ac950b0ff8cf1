"""Nouns: scheduler outputs by hand.

What vLLM's V1 scheduler sends to a runner, built field by field, so that a test can tell a correct
story or a story with one wrong field. Block ids are explicit; block 0 is the null block.
"""

from types import SimpleNamespace

from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import prompt_tokens

Blocks = list[int] | None


def new(request: Request, blocks: list[int], computed: int = 0) -> SimpleNamespace:
    """Return the data of a request that enters; `computed` tokens are a prefix hit."""
    return SimpleNamespace(
        req_id=str(request.id), prompt_token_ids=prompt_tokens(request), block_ids=(blocks,),
        num_computed_tokens=computed, lora_request=None, mm_features=[], prefill_token_ids=None,
    )  # fmt: skip


def cached(
    request: Request, computed: int, outputs: int, blocks: Blocks = None, resumed: bool = False,
    tokens: list[int] | None = None,
) -> SimpleNamespace:  # fmt: skip
    """Return the data of a known request; `blocks` are its new ones, or all when resumed.

    `outputs` counts its output tokens (async: placeholders too); `tokens` are all its tokens, sent
    when an async request re-enters the batch.
    """
    return SimpleNamespace(
        req_id=str(request.id), num_computed_tokens=computed, num_output_tokens=outputs,
        block_ids=None if blocks is None else (blocks,), resumed=resumed, tokens=tokens,
    )  # fmt: skip


def output(
    shares: dict[int, int],
    *data: SimpleNamespace,
    drafts: dict[int, list[int]] | None = None,
    finished: tuple[int, ...] = (),
    zeroed: list[int] | None = None,
) -> SimpleNamespace:
    """Return one scheduler output: tokens per request id, and the data of new and known ones."""
    known = [item for item in data if hasattr(item, "num_output_tokens")]
    return SimpleNamespace(
        finished_req_ids={str(number) for number in finished},
        scheduled_new_reqs=[item for item in data if item not in known],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[item.req_id for item in known],
            resumed_req_ids={item.req_id for item in known if item.resumed},
            new_block_ids=[item.block_ids for item in known],
            all_token_ids={item.req_id: item.tokens for item in known if item.tokens is not None},
            num_computed_tokens=[item.num_computed_tokens for item in known],
            num_output_tokens=[item.num_output_tokens for item in known],
        ),
        num_scheduled_tokens={str(number): tokens for number, tokens in shares.items()},
        total_num_scheduled_tokens=sum(shares.values()),
        scheduled_spec_decode_tokens={str(n): tokens for n, tokens in (drafts or {}).items()},
        has_structured_output_requests=False,
        new_block_ids_to_zero=zeroed,
    )
