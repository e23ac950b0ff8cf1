"""Nouns: the seed bug, fabricated traces, fake pair.

The scenario of the padding bug that separates 0.28.0 from 0.29.0, with bystanders to minimize
away, and traces made by hand for what needs no vLLM.
"""

from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Output, Scheduled, Step, Trace, Violation

# Request 2 has one uncomputed token after its cached prefix, and room for no draft beside it.
SEED_BUG = Scenario(
    Engine(max_model_len=66, num_blocks=40, num_speculative_tokens=1),
    (
        Request(0, Prompt(64, 1), 2),
        Request(1, Prompt(9, 2), 12, accept=(0, 1)),
        Request(2, Prompt(65, 1), 1, arrival=4),
        Request(3, Prompt(5), 2, arrival=9),
    ),
)
SMALL = Scenario(Engine(max_model_len=64, num_blocks=8), (Request(0, Prompt(5), 2),))
CONTRACT = Violation("contract", "token-budget", "9 > 8", 1, 0, "running")


def step(index: int, *shares: Scheduled, **fields: object) -> Step:
    """Return a step in which only the given fields are not idle."""
    quiet = {
        "preempted": (), "finished": (), "delivered": (), "running": 0, "waiting": 0,
        "free_blocks": 7,
    }  # fmt: skip
    return Step(index, shares, **{**quiet, **fields})  # type: ignore[arg-type]


def trace(*steps: Step, violations: tuple[Violation, ...] = ()) -> Trace:
    """Return a finished trace, or a violated one."""
    outcome = "violated" if violations else "finished"
    return Trace(outcome, steps, (Output(0, (1, 2), "length"),), violations)


FIRST = step(0, Scheduled(0, "new", 0, 5, 0, 1, 1), delivered=((0, 1),), events=("arrive 0",))
SECOND = step(1, Scheduled(0, "running", 5, 3, 2, 1, 1), finished=(0,), delivered=((0, 1),))
OTHER = step(1, Scheduled(0, "running", 5, 1, 0, 1, 1), finished=(0,), delivered=((0, 1),))


class FakePair:
    """A pair whose every run gives the same traces."""

    def __init__(self, *traces: Trace) -> None:
        self.traces = traces

    def __enter__(self) -> "FakePair":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, scenario: object) -> tuple[Trace, ...]:
        return self.traces
