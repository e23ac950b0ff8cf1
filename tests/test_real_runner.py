"""vLLM's own model runner on real releases: exact, repeatable, and as the simulated one."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from fabricated import SEED_BUG
from msgspec.structs import replace

from schedfuzz.bench.fidelity import difference
from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.corpus import codec
from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
OLD, BEFORE, AFTER, NEWEST = "0.27.1", "0.28.0", "0.29.0", "0.32.0"
# Request 2 has room for two tokens of output, and the padding leaves none of it.
ASYNC_SEED_BUG = replace(
    SEED_BUG,
    engine=replace(
        SEED_BUG.engine, block_size=32, max_model_len=67, num_speculative_tokens=2,
        async_scheduling=True,
    ),
    requests=(
        SEED_BUG.requests[0], replace(SEED_BUG.requests[1], max_tokens=30),
        replace(SEED_BUG.requests[2], max_tokens=2), SEED_BUG.requests[3],
    ),
)  # fmt: skip


def play(pair: Pair, seed: int, count: int) -> list[tuple[Scenario, Trace, Trace]]:
    """Run generated scenarios of what both runners can play and the pair's releases have."""
    supported = Supported(limits.parting)
    supported.learn('engine.model_runner "v1"')
    played: list[tuple[Scenario, Trace, Trace]] = []
    numbers = itertools.count()
    while len(played) < count:
        scenario = supported.fit(generate(Random(f"{seed}:{next(numbers)}")))
        before, after = pair.run(scenario)
        lacking = [t.reason for t in (before, after) if t.outcome == "unsupported"]
        for field in lacking:
            supported.learn(field)
        if not lacking:
            played.append((scenario, before, after))
    return played


def started(home: Home, before: str, after: str, **options: object) -> Pair:
    return Pair(parse_target(before), parse_target(after), home, print, **options)


def plain(trace: Trace) -> bytes:
    return msgspec.json.encode(replace(trace, coverage=b""))


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """The real runners of a release that the seed bug kills and of one without it."""
    with started(shared_home, f"{OLD}:real", f"{AFTER}:real") as real:
        yield real


# -- the checkable model is exact ----------------------------------------------------------------

LONG = Engine(max_model_len=4096, num_blocks=300, block_size=32, max_num_batched_tokens=1024)
DRAFTS = {"num_speculative_tokens": 3}
WINDOWS = {"groups": (Group("full"), Group("sliding_window", window=100))}


@pytest.mark.parametrize(
    "changes",
    [{}, {"async_scheduling": True}, DRAFTS, DRAFTS | {"async_scheduling": True}, WINDOWS],
    ids=["plain", "async", "drafts", "async drafts", "windows"],
)
def test_a_long_request_in_a_mixed_batch_yields_its_own_tokens(pair: Pair, changes: dict) -> None:
    accept = (3, 0, 1)
    scenario = Scenario(
        replace(LONG, **changes),
        (Request(0, Prompt(4030, 1), 66, accept=accept), Request(1, Prompt(1, 2), 90),
         Request(2, Prompt(3000, 1, shared=2900), 50, arrival=9, accept=accept),
         Request(3, Prompt(100, 1), 40, arrival=12, accept=accept)),
    )  # fmt: skip
    for trace in pair.run(scenario):
        assert trace.outcome == "finished", trace
        assert {o.request: list(o.tokens) for o in trace.outputs} == expected_outputs(scenario)


# -- PR #53962 -----------------------------------------------------------------------------------


def test_the_seed_bug_kills_an_old_runner_and_is_still_the_schedulers_fault(pair: Pair) -> None:
    before, after = pair.run(ASYNC_SEED_BUG)
    verdict = judge(before, after)
    assert (verdict.verdict, verdict.rule) == ("fixed", "past-max-model-len")
    contract, death = before.violations
    assert (death.kind, death.rule, death.step) == ("crash", "ValueError", contract.step + 1)
    assert death.function.endswith("GPUModelRunner._prepare_inputs")
    assert contract.component == death.component == verdict.component == "scheduler"
    assert after.outcome == "finished"


def test_the_seed_bug_is_fixed_between_the_releases(shared_home: Home) -> None:
    """0.28.0 breaks the bound too, but its scheduler never lets a count go below zero after it."""
    sync = replace(SEED_BUG, engine=replace(SEED_BUG.engine, block_size=32))
    with started(shared_home, f"{BEFORE}:real", AFTER) as real:
        for scenario in (sync, ASYNC_SEED_BUG):
            before, after = real.run(scenario)
            verdict = judge(before, after)
            assert (verdict.verdict, verdict.rule) == ("fixed", "past-max-model-len")
            assert [v.component for v in before.violations] == ["scheduler"]
            assert after.outcome == "finished"


# -- the same every time -------------------------------------------------------------------------


def test_a_scenario_run_first_and_after_a_hundred_others_gives_the_same_trace(pair: Pair) -> None:
    """Among the others is one that dies in the midst of vLLM's step."""
    first = play(pair, 1, 3)
    play(pair, 2, 96)
    assert [v.kind for v in pair.run(ASYNC_SEED_BUG)[0].violations] == ["contract", "crash"]
    for scenario, *traces in first:
        assert list(map(plain, pair.run(scenario))) == list(map(plain, traces))


def test_no_scenario_raises_the_number_of_threads(pair: Pair) -> None:
    """The n-gram drafter's compiler did so for all kernels, whose threads then wait spinning."""
    scenario = codec.load(seed_corpus() / "ngram_drafts.json")
    scenario = replace(scenario, engine=replace(scenario.engine, block_size=32))
    assert [trace.outcome for trace in pair.run(scenario)] == ["finished", "finished"]
    play(pair, 4, 2)
    workers = [side.worker for side in (pair.before, pair.after)]
    assert [len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in workers] == [1, 1]


@pytest.fixture(scope="module")
def played(shared_home: Home) -> list[tuple[Scenario, Trace, Trace]]:
    """What the newest release's real runner does with the same scenarios in two processes, whose
    workers are replaced every now and then."""
    newest = f"{NEWEST}:real"
    with started(shared_home, newest, newest, recycle_runs=60, coverage=False) as real:
        return play(real, 3, 200)


def test_the_real_runner_against_itself_gives_no_verdict(
    played: list[tuple[Scenario, Trace, Trace]],
) -> None:
    assert len(played) == 200
    for scenario, before, after in played:
        assert plain(before) == plain(after), scenario


# -- fidelity ------------------------------------------------------------------------------------


def forgets_min_tokens(scenario: Scenario) -> bool:
    """Return whether vLLM may lose a minimum: drafts are counted as output before they are."""
    drafts = scenario.engine.num_speculative_tokens > 0
    return drafts and any(r.min_tokens and r.stop_at is not None for r in scenario.requests)


# What parts the runners, by vLLM's fault, and the scenarios that may show it.
OPEN_BUGS = {"only the real runner breaks runner-output, the runner's fault": forgets_min_tokens}


def test_the_simulated_runner_gives_the_traces_of_the_real_one(
    shared_home: Home, played: list[tuple[Scenario, Trace, Trace]]
) -> None:
    """In one worker that lives on, on scenarios that other workers of the real runner played."""
    differences: dict[str, list[Scenario]] = {}
    with started(shared_home, NEWEST, f"{NEWEST}:real", coverage=False) as both:
        for scenario, real, _ in played:
            simulated, again = both.run(scenario)
            assert plain(again) == plain(real), scenario
            found = difference(simulated, real)
            if found is not None:
                differences.setdefault(found[0], []).append(scenario)
    assert differences.keys() <= set(OPEN_BUGS), differences
    for what, shown in differences.items():
        assert all(map(OPEN_BUGS[what], shown)), what
