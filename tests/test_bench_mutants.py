"""How a mutant is tried: on scenarios that run its code, to its kill or its limits."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from fabricated import CONTRACT, FIRST, OTHER, SECOND, SEED_BUG, SMALL, trace

from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.mutant_trial import MAX_INFRA, RUNS_AFTER_DIVERGENCE, Limits, MutantTrial
from schedfuzz.bench.mutants import MODULES, MutantsBench, sample, within_reach
from schedfuzz.bench.mutation import Mutation
from schedfuzz.bench.reference import Reference, scenarios
from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Violation
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import write_file

SITE = "vllm.v1.core.block_pool:f:1"
FINISHED = msgspec.structs.replace(trace(FIRST, SECOND), coverage=bytes([1, 1]))
ELSEWHERE = msgspec.structs.replace(FINISHED, coverage=bytes([0, 1]))
DIVERGED = trace(FIRST, OTHER)
BROKEN = trace(FIRST, violations=(CONTRACT,))
HANG = Violation("hang", "cpu-limit", "5 s", 1)
INFRA = Trace("infra", reason="out of memory")
MUTATION = Mutation(
    "vllm.v1.core.block_pool", "f", "relation", "< to <=", SITE, "Compare", (1, 0, 1, 5), "a <= b"
)


class FakeProcess:
    """Answers every scenario by a rule; `ran` keeps what it was given."""

    where = [SITE, "vllm.v1.core.block_pool:g:9"]

    def __init__(self, *answers: Trace) -> None:
        self.answers = list(answers)
        self.ran: list[Scenario] = []

    def submit(self, scenario: Scenario) -> None:
        self.ran.append(scenario)

    def collect(self) -> Trace:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def spawn(self) -> None:
        pass

    def wait_ready(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


def reference(*answers: Trace) -> Reference:
    """Return the reference of as many scenarios as there are answers; later runs finish."""
    process: Any = FakeProcess(*answers, FINISHED)
    made = Reference(process)
    made.fill((SMALL for _ in answers), lambda: False)
    return made


def tried(ref: Reference, *answers: Trace, runs: int = 200) -> tuple[dict[str, Any], MutantTrial]:
    trial = MutantTrial(MUTATION, ref, Limits(60.0, runs), lambda: False)
    process: Any = FakeProcess(*answers)
    return trial.run(process), trial


def test_the_reference_keeps_what_was_played_and_knows_what_it_ran() -> None:
    stuck = trace(FIRST, violations=(HANG,))
    ref = reference(FINISHED, INFRA, ELSEWHERE, Trace("rejected"), stuck)
    assert len(ref.entries) == 2
    assert [ref.reaches(entry, SITE) for entry in ref.entries] == [True, False]
    assert not ref.reaches(ref.entries[0], "vllm.v1.core.block_pool:other:3")
    assert ref.entries[0].trace == msgspec.structs.replace(FINISHED, coverage=b"")


def test_what_no_engine_of_a_cpu_build_runs_is_left_out_by_name() -> None:
    hidden = [
        msgspec.structs.replace(MUTATION, function=name)
        for name in (
            "HiSparseHotManager.f",
            "_HiSparseAuxiliaryManager.g",
            "BlockPool.unpin_blocks",
        )
    ]
    ranks = msgspec.structs.replace(MUTATION, original="self.dcp_world_size > 1")
    kept, left_out = within_reach([hidden[0], MUTATION, *hidden[1:], ranks])
    assert kept == [MUTATION]
    assert list(left_out.values()) == [3, 1]
    assert ["CUDA" in reason for reason in left_out] == [True, False]


def test_only_scenarios_that_run_the_block_are_tried() -> None:
    trial = MutantTrial(
        MUTATION, reference(ELSEWHERE, FINISHED, ELSEWHERE), Limits(9.0, 9), lambda: False
    )
    assert len(trial.entries) == 1


def test_a_broken_rule_kills_at_once() -> None:
    result, trial = tried(reference(*[FINISHED] * 5), FINISHED, BROKEN)
    assert (result["status"], result["by"], result["executions"]) == ("killed", "violation", 2)
    assert result["title"] == "token-budget (running request)" and trial.executions == 2


def test_a_divergence_kills_and_a_few_more_runs_may_show_a_violation() -> None:
    result, trial = tried(reference(*[FINISHED] * 90), FINISHED, DIVERGED)
    assert (result["by"], result["executions"]) == ("divergence", 2)
    assert trial.executions == 2 + RUNS_AFTER_DIVERGENCE
    result, trial = tried(reference(*[FINISHED] * 90), DIVERGED, FINISHED, BROKEN)
    assert (result["by"], result["executions"], trial.executions) == ("violation", 1, 3)


def test_a_mutant_that_does_as_the_original_survives_its_limit() -> None:
    ref = reference(FINISHED, FINISHED)
    result, trial = tried(ref, FINISHED, runs=20)
    assert (result["status"], result["executions"]) == ("survived", 20)
    assert len(ref.original.ran) == 2 + 18  # type: ignore[attr-defined]  # mutations of entries
    assert len(trial.entries) == 20


def test_scenarios_that_the_original_cannot_run_cannot_kill() -> None:
    process: Any = FakeProcess(FINISHED, INFRA)
    ref = Reference(process)
    ref.fill([SMALL], lambda: False)
    result, _ = tried(ref, FINISHED, BROKEN, runs=9)
    assert (result["status"], result["executions"]) == ("survived", 9)


def test_where_the_original_breaks_a_rule_the_whole_run_counts() -> None:
    lit = msgspec.structs.replace(BROKEN, coverage=bytes([1, 1]))
    other = msgspec.structs.replace(CONTRACT, detail="33 > 32")
    alike = msgspec.structs.replace(BROKEN, violations=(other,))
    result, _ = tried(reference(lit), alike, runs=1)
    assert result["status"] == "survived"
    for mutant, by in (
        (trace(OTHER, violations=(CONTRACT,)), "divergence"),
        (DIVERGED, "divergence"),
        (trace(FIRST, violations=(HANG,)), "violation"),
    ):
        result, _ = tried(reference(lit), mutant, runs=1)
        assert (result["status"], result.get("by")) == ("killed", by)


def test_what_the_machine_cannot_run_says_nothing_of_the_mutant() -> None:
    result, _ = tried(reference(FINISHED), INFRA)
    assert (result["status"], result["executions"]) == ("not run", MAX_INFRA)


# -- what is tried -------------------------------------------------------------------------------


def source_tree(root: Path) -> Environment:
    environment = Environment("0.29.0", "cpu", root)
    folder = environment.site_packages / "vllm" / "v1" / "core"
    folder.mkdir(parents=True)
    (folder / "block_pool.py").write_text("def f(a, b):\n    return a < b, a + 1, a[0]\n")
    return environment


def test_the_same_seed_chooses_the_same_mutants(tmp_path: Path) -> None:
    environment = source_tree(tmp_path)
    order = [item.name for item in sample(environment, list(MODULES), 1)]
    assert order == [item.name for item in sample(environment, list(MODULES), 1)]
    assert len(order) == 6 and len(set(order)) == 6
    others = [[i.name for i in sample(environment, list(MODULES), seed)] for seed in range(2, 6)]
    assert all(sorted(other) == sorted(order) for other in others)
    assert any(other != order for other in others)
    assert sample(environment, ["scheduler"], 1) == []


def test_scenarios_are_those_of_the_directories_then_random_ones(tmp_path: Path) -> None:
    for name, data in (("b", encode(SEED_BUG)), ("a", encode(SMALL)), ("c", b"no scenario")):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "d").mkdir()
    first = list(scenarios([tmp_path], 7, 6))
    assert first[:2] == [SMALL, SEED_BUG] and len(first) == 6
    assert list(scenarios([tmp_path], 7, 6)) == first
    assert list(scenarios([tmp_path], 8, 6))[2:] != first[2:]
    assert list(scenarios([tmp_path], 7, 1)) == [SMALL]
    assert Random("7:0").random() == Random("7:0").random()


class FakeBench(MutantsBench):
    """A bench whose processes are fake: the mutants' answers are given by their order."""

    mutants: list[Any]
    original: Any

    def _process(self, target: str, log: Path, **options: Any) -> Any:
        return self.mutants.pop(0) if "+" in target else self.original


class Unstartable(FakeProcess):
    def wait_ready(self) -> None:
        raise InputError("its process ended while starting")


def bench(tmp_path: Path, ledger: Ledger, stopping: Any = lambda: False) -> FakeBench:
    said: list[str] = []
    made = FakeBench(
        "0.29.0", source_tree(tmp_path), tmp_path, tmp_path / "log", ledger, Limits(60.0, 5),
        said.append, stopping,
    )  # fmt: skip
    made.original = FakeProcess(FINISHED)
    return made


def mutation(line: int, site: str = SITE) -> Mutation:
    return msgspec.structs.replace(MUTATION, span=(line, 0, line, 5), site=site)


def test_every_chosen_mutant_gets_one_result_and_is_not_tried_again(tmp_path: Path) -> None:
    ledger = Ledger("mutants", {}, tmp_path / "x.json", write_file)
    chosen = [mutation(1), mutation(2), mutation(3), mutation(4, "vllm.v1.core.block_pool:h:4")]
    mine = bench(tmp_path, ledger)
    mine.mutants = [FakeProcess(BROKEN), Unstartable(FINISHED), FakeProcess(FINISHED)]
    processes = list(mine.mutants)
    mine.run(chosen, [SMALL])
    results = {item["line"]: (item["status"], item.get("by")) for item in ledger}
    assert results == {
        1: ("killed", "violation"), 2: ("killed", "start"), 3: ("survived", None),
        4: ("not reached", None),
    }  # fmt: skip
    assert all(process.stopped for process in [*processes, mine.original])
    mine.original = None  # any use of it would fail
    mine.run(chosen, [SMALL])


def test_a_bench_that_is_stopped_keeps_what_it_knows(tmp_path: Path) -> None:
    ledger = Ledger("mutants", {}, None, write_file)
    mine = bench(tmp_path, ledger, lambda: len(list(ledger)) == 1)
    mine.mutants = [FakeProcess(BROKEN), FakeProcess(FINISHED)]
    processes = list(mine.mutants)
    mine.run([mutation(1), mutation(2), mutation(3)], [SMALL])
    assert [item["line"] for item in ledger] == [1]
    assert all(process.stopped for process in processes)


@pytest.mark.parametrize("name", ["scheduler", "block_pool"])
def test_the_modules_are_known_by_their_last_name(name: str) -> None:
    assert MODULES[name].startswith("vllm.v1.core.") and MODULES[name].endswith(name)
