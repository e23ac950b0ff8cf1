"""Nouns: fidelity, difference, example.

How true the simulated runner is: the same random scenarios on one release with either runner, whose
traces must be equal, every gauge of every step. What only one of them can play is no scenario here,
and neither is the n-gram drafter, which looks up other tokens than the simulated one.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.order import order
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Step, Trace
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import judge, key, shorter, title, unbroken
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.real import limits

# A release may refuse a scenario or lack what it uses; beyond this many tries for each wanted one
# there is nothing to compare.
TRIES = 3
MAX_NAME = 60

Traces = tuple[Trace, Trace]


@dataclass
class Difference:
    """How two traces part first, how often, and the smallest scenario that shows it.

    `rank` is that scenario's place in the order of simplicity.
    """

    what: str
    detail: str
    example: Scenario
    rank: Any
    count: int = 1

    @property
    def name(self) -> str:
        """Return a file name's stem for the example."""
        return re.sub(r"[^a-z0-9]+", "-", self.what.lower()).strip("-")[:MAX_NAME].strip("-")


@dataclass
class Fidelity:
    """The figures so far. `refused` by the release on both runners, `infra`: could not be run.

    `left_out` says from how many scenarios a field was taken that a runner lacks there.
    """

    release: str
    seed: int
    compared: int = 0
    equal: int = 0
    refused: int = 0
    infra: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    differences: dict[str, Difference] = field(default_factory=dict)

    def count(self, scenario: Scenario, traces: Traces) -> None:
        """Count one scenario that both runners answered for."""
        found = difference(*traces)
        if found is None and traces[0].outcome == "rejected":
            self.refused += 1
            return
        self.compared += 1
        if found is None:
            self.equal += 1
            return
        what, detail = found
        rank = order(scenario, shorter(*traces))
        known = self.differences.get(what)
        if known is None:
            self.differences[what] = Difference(what, detail, scenario, rank)
            return
        known.count += 1
        if rank < known.rank:
            known.detail, known.example, known.rank = detail, scenario, rank

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` shows, the most frequent difference first."""
        names = (
            "release", "seed", "compared", "equal", "refused", "infra", "left_out", "seconds",
        )  # fmt: skip
        rows = [
            {"what": item.what, "count": item.count, "detail": item.detail,
             "scenario": msgspec.json.decode(encode(item.example))}
            for item in self.sorted()
        ]  # fmt: skip
        return {name: getattr(self, name) for name in names} | {"differences": rows}

    def sorted(self) -> list[Difference]:
        """Return the differences, the most frequent first."""
        return sorted(self.differences.values(), key=lambda item: (-item.count, item.what))


def measure(
    pair: Pair, wanted: int, seed: int, told: Callable[[Fidelity], None],
    stopping: Callable[[], bool],
) -> Fidelity:  # fmt: skip
    """Compare `wanted` scenarios on a release's two runners; `told` hears after each.

    Returns fewer when `stopping` says so, or when most of the release's answers are refusals.
    """
    fidelity = Fidelity(pair.before.target.release, seed)
    start = time.monotonic()
    for number in range(TRIES * wanted):
        if fidelity.compared == wanted or stopping():
            break
        scenario, traces, lacking = _played(pair, generate(Random(f"{seed}:{number}")))
        for name in lacking:
            fidelity.left_out[name] = fidelity.left_out.get(name, 0) + 1
        if any(trace.outcome in ("infra", "unsupported") for trace in traces):
            fidelity.infra += 1
        else:
            fidelity.count(scenario, traces)
        fidelity.seconds = time.monotonic() - start
        told(fidelity)
    return fidelity


def _played(pair: Pair, scenario: Scenario) -> tuple[Scenario, Traces, list[str]]:
    """Run a scenario without what a runner lacks; return what ran, its traces and what it lost.

    Nothing is learnt from one for the next: a field may be lacking in some company only.
    """
    supported = Supported(limits.parting)
    while True:
        scenario = supported.fit(scenario)
        traces = pair.run(scenario)
        lacking = {trace.reason for trace in traces if trace.outcome == "unsupported"}
        if lacking <= supported.left_out:
            return scenario, traces, sorted(supported.left_out)
        for reason in lacking:
            supported.learn(reason)


def difference(simulated: Trace, real: Trace) -> tuple[str, str] | None:
    """Return how two traces part first, in stable words and in detail; None for equal ones."""
    one, two = replace(simulated, coverage=b""), replace(real, coverage=b"")
    if one == two:
        return None
    if one.violations and two.violations:
        first = one.violations[0], two.violations[0]
        if key(first[0]) != key(first[1]):
            return f"{title(first[0])} / {title(first[1])}", first[1].detail
        # The same rule on both: what went before must differ, or what came after.
        one, two = unbroken(one, two)
    verdict = judge(one, two)
    if verdict.verdict == "fixed":
        return f"only the simulated runner breaks {verdict.title}", verdict.detail
    if verdict.verdict == "regressed":
        return f"only the real runner breaks {verdict.title}", verdict.detail
    if verdict.verdict == "changed":
        return verdict.title, verdict.detail
    return _gauge(one, two) or ("what follows the broken rule", "")


def _gauge(one: Trace, two: Trace) -> tuple[str, str] | None:
    """Return the first figure of a step that decides nothing and yet differs."""
    for mine, theirs in zip(one.steps, two.steps, strict=False):
        for name in Step.__struct_fields__:
            left, right = getattr(mine, name), getattr(theirs, name)
            if left != right:
                # All else of a share is a decision.
                what = "blocks of a share" if name == "scheduled" else name
                return f"gauge differs first in {what}", f"step {mine.index}: {left} / {right}"
    return None
