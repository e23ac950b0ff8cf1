"""Nouns: bitmask row.

A grammar's bitmask as the model runners read it: one row for each token that a request may sample,
request after request.
"""

from typing import Any, NamedTuple

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.sampling import EVERYTHING
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.rows import Row

WORD = (1 << 32) - 1


class Rows(NamedTuple):
    """A step's bitmask as the runners read it, by request number.

    `masks` has the allowed tokens, as bits, of each token that the request may sample;
    `acceptable` is how many of its drafts may be accepted at all.
    """

    masks: dict[int, list[int]]
    acceptable: dict[int, int]

    def mask(self, row: Row, position: int) -> int:
        """Return the tokens that may follow a position of a row's window."""
        masks = self.masks.get(row.state.number)
        return EVERYTHING if masks is None else masks[position - row.newest]


NO_ROWS = Rows({}, {})


def read_rows(output: Any, grammar_output: Any, step: int, runner: str) -> Rows:
    """Return what vLLM's GrammarOutput allows to a scheduler output at an engine step.

    Raises BrokenRule if its rows do not fit. Source: `apply_grammar_bitmask` of the V1 runner,
    `StructuredOutputsWorker` of the V2 runner; only the latter heeds `num_acceptable_drafts`.
    """
    ids = grammar_output.structured_output_request_ids
    drafts = output.scheduled_spec_decode_tokens
    counts = [1 + len(drafts.get(req_id, ())) for req_id in ids]
    words = grammar_output.grammar_bitmask.tolist()
    if len(words) != sum(counts):
        detail = f"{len(words)} rows for {sum(counts)} tokens"
        raise BrokenRule(violation("grammar-rows", detail, step))
    bits = [sum((word & WORD) << 32 * index for index, word in enumerate(row)) for row in words]
    masks, start = {}, 0
    for req_id, count in zip(ids, counts, strict=True):
        masks[int(req_id)] = bits[start : start + count]
        start += count
    limits = getattr(grammar_output, "num_acceptable_drafts", None)
    if limits is None or runner == "v1":
        return Rows(masks, {})
    return Rows(masks, {int(req_id): limit for req_id, limit in zip(ids, limits, strict=True)})
