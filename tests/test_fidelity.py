"""What counts as a difference between the two runners of a release, and how they are counted."""

from fabricated import CONTRACT, FIRST, OTHER, SECOND, SMALL, trace
from msgspec.structs import replace

from schedfuzz.bench.fidelity import Fidelity, difference
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.trace import Trace

GOOD = trace(FIRST, SECOND)
BROKEN = trace(FIRST, violations=(CONTRACT,))


def test_equal_but_for_the_coverage_is_equal() -> None:
    assert difference(GOOD, replace(GOOD, coverage=b"\1")) is None
    assert difference(BROKEN, BROKEN) is None


def test_every_way_to_part_has_its_words() -> None:
    fault = replace(CONTRACT, rule="runner-output", component="runner")
    later = replace(CONTRACT, detail="10 > 8")
    gauge = trace(FIRST, replace(SECOND, free_blocks=3))
    blocks = replace(SECOND, scheduled=(replace(SECOND.scheduled[0], blocks=9),))
    told = {
        "only the real runner breaks token-budget (running request)": (GOOD, BROKEN),
        "only the simulated runner breaks token-budget (running request)": (BROKEN, GOOD),
        "token-budget (running request) / runner-output (running request), the runner's fault": (
            BROKEN, trace(FIRST, violations=(fault,)),
        ),
        "schedule differs first in tokens of a running request": (GOOD, trace(FIRST, OTHER)),
        "schedule differs first in steps": (BROKEN, trace(FIRST, SECOND, violations=(CONTRACT,))),
        "outcome differs first in finished to rejected": (GOOD, Trace("rejected", reason="no")),
        "gauge differs first in free_blocks": (GOOD, gauge),
        "gauge differs first in blocks of a share": (GOOD, trace(FIRST, blocks)),
        "what follows the broken rule": (BROKEN, trace(FIRST, violations=(later,))),
    }  # fmt: skip
    for words, sides in told.items():
        found = difference(*sides)
        assert found is not None and found[0] == words


def test_the_smallest_scenario_is_the_example_of_its_difference() -> None:
    large = replace(SMALL, requests=(*SMALL.requests, Request(1, SMALL.requests[0].prompt, 3)))
    fidelity = Fidelity("0.29.0", 1)
    fidelity.count(large, (GOOD, BROKEN))
    fidelity.count(SMALL, (GOOD, BROKEN))
    fidelity.count(large, (GOOD, BROKEN))
    fidelity.count(SMALL, (GOOD, GOOD))
    rejected = Trace("rejected", reason="too small")
    fidelity.count(SMALL, (rejected, rejected))
    [found] = fidelity.sorted()
    assert (found.count, found.example) == (3, SMALL)
    assert (fidelity.compared, fidelity.equal, fidelity.refused) == (4, 1, 1)
    assert found.name == "only-the-real-runner-breaks-token-budget-running-request"
