"""Nouns: told rows: the logprobs of a step's output, on the real runner and on its reference.

A client gets rows from several steps and from the scheduler that cuts them; compared step by step
with the reference's, what is wrong is the runner's own.
"""

from typing import Any

from schedfuzz.corpus.sampling import Row
from schedfuzz.workers.target.logprobs import rows_of

Wrong = tuple[str, str]  # a request's id and what is wrong with its rows


def wrong_logprobs(output: Any, wanted: Any, order: list[str], counts: dict[str, int]) -> Wrong:
    """Return the first request whose rows differ from the reference's; ("", "") if none does.

    `output` is the real ModelRunnerOutput, `wanted` the reference's LogprobsLists for the requests
    in `order`, `counts` how many rows each request that asked for them is told.
    """
    for req_id, count in counts.items():
        want = _of(wanted, order.index(req_id), count)
        if output.logprobs is None or req_id not in output.req_ids:
            return req_id, f"no logprobs for {count} tokens"
        found = _of(output.logprobs, output.req_ids.index(req_id), count)
        detail = _difference(found, want)
        if detail:
            return req_id, detail
    return "", ""


def wrong_prompt_logprobs(output: Any, wanted: dict[str, Any]) -> Wrong:
    """Return the first request whose prompt's rows differ from the reference's tensors."""
    for req_id, tensors in wanted.items():
        found = output.prompt_logprobs_dict.get(req_id)
        if found is None:
            return req_id, "no logprobs of its prompt"
        rows, want = (rows_of(told.logprob_token_ids, told.logprobs) for told in (found, tensors))
        detail = _difference(rows, want)
        if detail:
            return req_id, f"of its prompt, {detail}"
    return "", ""


def _of(lists: Any, index: int, count: int) -> list[Row]:
    """Return the first rows of a request in vLLM's LogprobsLists."""
    starts = lists.cu_num_generated_tokens
    first = index if starts is None else int(starts[index])
    rows = slice(first, first + count)
    return rows_of(lists.logprob_token_ids[rows], lists.logprobs[rows])


def _difference(rows: list[Row], wanted: list[Row]) -> str:
    if len(rows) != len(wanted):
        return f"{len(rows)} rows for {len(wanted)} tokens"
    for index, (row, want) in enumerate(zip(rows, wanted, strict=True)):
        if not row.is_like(want):
            return f"row {index} is ({row}), its inputs give ({want})"
    return ""
