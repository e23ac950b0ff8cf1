"""Real releases and the simulated runner: the seed bug, determinism, and broken targets caught."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from fabricated import SEED_BUG

from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
# The seed bug's story with a long decode beside it: time enough to see who waits.
WAITS = msgspec.structs.replace(
    SEED_BUG,
    requests=(Request(0, Prompt(64, 1), 2), Request(1, Prompt(9, 2), 30),
              Request(2, Prompt(65, 1), 1, arrival=4)),
)  # fmt: skip
FAULTS = Path(__file__).parent / "faults" / "faults.py"


@contextmanager
def pair(home: Home, before: str, after: str, **options: object) -> Iterator[Pair]:
    with Pair(parse_target(before), parse_target(after), home, print, **options) as started:
        yield started


@pytest.fixture(scope="module")
def seed_pair(shared_home: Home) -> Iterator[Pair]:
    """The two releases around the fix."""
    with pair(shared_home, "0.28.0", "0.29.0") as started:
        yield started


def plain(trace: Trace) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(trace, coverage=b""))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_seed_bug_is_fixed_between_the_releases(seed_pair: Pair, asynchronous: bool) -> None:
    engine = msgspec.structs.replace(SEED_BUG.engine, async_scheduling=asynchronous)
    before, after = seed_pair.run(msgspec.structs.replace(SEED_BUG, engine=engine))
    verdict = judge(before, after)
    assert (verdict.verdict, verdict.kind, verdict.rule) == (
        "fixed",
        "contract",
        "past-max-model-len",
    )
    assert after.outcome == "finished"


def test_outputs_are_the_continuation_whatever_the_schedule(seed_pair: Pair) -> None:
    checked = 0
    for seed in range(60):
        scenario = generate(Random(seed))
        _, after = seed_pair.run(scenario)
        if after.outcome != "finished":
            continue
        expected = expected_outputs(scenario)
        for output in after.outputs:
            if output.finish_reason == "length":
                assert list(output.tokens) == expected[output.request]
                checked += 1
    assert checked > 50


def test_a_scenario_run_first_and_after_a_hundred_others_gives_the_same_trace(
    seed_pair: Pair,
) -> None:
    scenario = generate(Random(7))
    first = [plain(trace) for trace in seed_pair.run(scenario)]
    for seed in range(1000, 1100):
        seed_pair.run(generate(Random(seed)))
    assert [plain(trace) for trace in seed_pair.run(scenario)] == first


def test_another_process_gives_the_same_traces_and_coverage(
    seed_pair: Pair, shared_home: Home
) -> None:
    scenarios = [generate(Random(seed)) for seed in range(300, 340)]
    here = [seed_pair.run(scenario) for scenario in scenarios]
    with pair(shared_home, "0.28.0", "0.29.0") as other:
        assert [other.run(scenario) for scenario in scenarios] == here


def test_a_recycled_worker_gives_the_same_traces(shared_home: Home, seed_pair: Pair) -> None:
    scenarios = [generate(Random(seed)) for seed in range(500, 530)]
    with pair(shared_home, "0.29.0", "0.29.0", recycle_runs=4) as recycling:
        for scenario in scenarios:
            one, two = recycling.run(scenario)
            assert plain(one) == plain(two) == plain(seed_pair.run(scenario)[1])
        assert recycling.restarts == 0  # recycling is no incident


def broken(home: Home, release: str, fault: str, scenario: Scenario, **options: object) -> Trace:
    """Return the trace of a release with a fault against the untouched release."""
    incidents: list[str] = []
    options["on_incident"] = lambda what, detail, _: incidents.append(f"{what} {detail}")
    with pair(home, release, f"{release}+{FAULTS}:{fault}", **options) as started:
        before, after = started.run(scenario)
        assert before.outcome == "finished", before.violations
        # The next scenario finds a working worker again.
        again = started.run(SEED_BUG)[0]
        assert again.outcome in ("finished", "violated")
    if after.outcome == "infra":
        assert incidents
    return after


def test_a_careless_fix_is_found_as_starvation(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "careless_fix", WAITS)
    assert [(v.kind, v.rule) for v in trace.violations] == [("starvation", "passed-over")]


def test_the_overrun_turned_into_a_break_is_found_as_starvation(shared_home: Home) -> None:
    scenario = WAITS
    names = "0.28.0", f"0.28.0+{FAULTS}:careless_fix"
    with pair(shared_home, *names) as started:
        before, after = started.run(scenario)
    assert before.violations[0].rule == "past-max-model-len"
    assert [(v.kind, v.rule) for v in after.violations] == [("starvation", "passed-over")]


TWO = '{"engine":{"max_model_len":66,"num_blocks":%d},"requests":[%s]}'


def two_requests(blocks: int = 20) -> Scenario:
    requests = ",".join(
        f'{{"id":{number},"prompt":{{"length":33}},"max_tokens":9,"arrival":{2 * number}}}'
        for number in range(4)
    )
    return decode(TWO % (blocks, requests))


def test_blocks_that_a_prefix_hit_does_not_hold_are_caught(shared_home: Home) -> None:
    fault = f"0.29.0+{FAULTS}:blocks_not_touched"
    with pair(shared_home, "0.29.0", fault) as started:
        verdicts = [judge(*started.run(generate(Random(seed)))) for seed in range(400)]
    found = {verdict.rule for verdict in verdicts if verdict.verdict == "regressed"}
    assert "kv-content" in found, found


def test_blocks_that_are_never_freed_are_a_leak(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "blocks_not_freed", two_requests(40))
    assert [(v.kind, v.rule) for v in trace.violations] == [("leak", "blocks-left")]


def test_a_token_that_is_not_the_requests_own_is_corruption(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "wrong_token", two_requests(40))
    assert [(v.kind, v.rule) for v in trace.violations] == [("corruption", "output")]
    assert trace.violations[0].detail == "its output differs from its own continuation at token 0"


def test_an_endless_loop_is_a_hang_named_by_its_function(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "endless_schedule", two_requests(), cpu_seconds=1.0)
    assert trace.violations[0].kind == "hang"
    assert trace.violations[0].function == "vllm.v1.core.sched.scheduler:Scheduler.schedule"


def test_a_dying_engine_process_is_a_crash(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "dying_process", two_requests())
    assert (trace.violations[0].kind, trace.violations[0].rule) == ("crash", "process-died")
    assert "SIGABRT" in trace.violations[0].detail


def test_a_process_that_the_engine_leaves_is_a_crash(shared_home: Home) -> None:
    """Also with the exit code of a worker that has nothing more to do."""
    trace = broken(shared_home, "0.29.0", "leaving_process", two_requests())
    assert (trace.violations[0].kind, trace.violations[0].rule) == ("crash", "process-died")


@pytest.mark.parametrize(
    "fault, rule, detail",
    [
        ("unspeakable_error", r"Bad\x1b", r"Bad\x1b: (its text cannot be had)"),
        ("hostile_error", "RuntimeError", r"RuntimeError: \ud800 \x00 \x1b[31m"),
    ],
)
def test_what_an_error_says_is_told_as_plain_text(
    shared_home: Home, fault: str, rule: str, detail: str
) -> None:
    [violation] = broken(shared_home, "0.29.0", fault, two_requests()).violations
    assert (violation.kind, violation.rule, violation.detail) == ("crash", rule, detail)
    assert violation.function == "vllm.v1.core.sched.scheduler:Scheduler.schedule"


def test_a_story_that_is_too_long_is_infra_and_no_hang(shared_home: Home) -> None:
    requests = tuple(Request(number, Prompt(1), 40) for number in range(3))
    story = Scenario(Engine(max_model_len=66, num_blocks=40), requests)
    trace = broken(shared_home, "0.29.0", "slow_schedule", story, cpu_seconds=1.0)
    assert trace.outcome == "infra" and "it was still moving at step" in trace.reason


def test_a_killed_process_is_infra_and_never_a_finding(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "killed_process", two_requests())
    assert trace.outcome == "infra" and "SIGKILL" in trace.reason


def test_an_unreachable_hang_runs_into_the_wall_limit(shared_home: Home) -> None:
    trace = broken(shared_home, "0.29.0", "endless_schedule", two_requests(), wall_seconds=3.0)
    assert (trace.violations[0].kind, trace.violations[0].rule) == ("hang", "wall-limit")
