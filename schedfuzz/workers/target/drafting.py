"""Nouns: draft method, reach.

How far the drafters write KV. Source: vLLM's `VllmConfig.num_lookahead_tokens` as of PR #43733, and
the drafters' own loops (`v1/spec_decode`, `v1/worker/gpu/spec_decode`).
"""

from schedfuzz.corpus.scenario import Engine


def reach(engine: Engine) -> int:
    """Return how many positions from the newest token's own on the drafter writes KV for.

    A draft model computes the newest token and all its drafts but the last; EAGLE-like heads are
    one position behind; DFlash computes the newest token and a mask token for each draft.
    """
    width = engine.num_speculative_tokens
    if not width:
        return 0
    reached = {"draft_model": width, "dflash": width + 1, "ngram": 0}
    return reached.get(engine.spec_method, width - 1)
