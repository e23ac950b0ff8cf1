"""Nouns: delivered output: what all clients together must have got when a run has ended."""

from collections.abc import Callable

from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Violation


def wrong_output(
    scenario: Scenario, delivered: dict[int, list[int]], whole: Callable[[int], bool], step: int
) -> Violation | None:
    """Return the first request whose tokens are not its own continuation, or not all of it.

    `whole` tells whether a request must have delivered all of its output.
    """
    expected = expected_outputs(scenario)
    for number, tokens in delivered.items():
        want = expected[number] if whole(number) else expected[number][: len(tokens)]
        if tokens != want:
            pairs = enumerate(zip(tokens, want, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(tokens), len(want)))
            detail = f"its output differs from its own continuation at token {at}"
            return violation("output", detail, step, number)
    return None
