"""Exported files run by plain pytest in real environments: the seed bug, and every form's code."""

import subprocess
from pathlib import Path

import pytest
from clones import git
from command import schedfuzz
from exported import DRAFTING, EVENTFUL, NAMES, ODD, PLAIN, URGENT, bad, broken
from fabricated import SEED_BUG
from msgspec.structs import replace

from schedfuzz.corpus.events import ResetPrefixCache
from schedfuzz.corpus.parts import Group, Turn
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.corpus.validate import validate
from schedfuzz.db import writes
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer.export import build_case
from schedfuzz.fuzzer.judge import fingerprint, judge, key
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm

RULE = "past-max-model-len"


def python(environment: Environment, *arguments: object, cwd: Path) -> tuple[int, str]:
    """Run an environment's own Python with nothing of ours in its variables."""
    variables = {**environment.variables(), "PYTHONPATH": ""}
    answer = subprocess.run(
        [str(environment.python), *map(str, arguments)], cwd=cwd, env=variables,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    return answer.returncode, answer.stdout + answer.stderr


def plain_pytest(environment: Environment, *files: Path) -> tuple[int, str]:
    return python(
        environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, cwd=files[0].parent
    )


def test_the_seed_bug_leaves_the_house(
    shared_home: Home, tmp_path: Path, environment_028: Environment, environment_029: Environment
) -> None:
    env = {"SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_DB": f"sqlite:///{tmp_path}/db"}
    store = open_store(env["SCHEDFUZZ_DB"])
    identity = key(violation(RULE, "", 0, path="new"))
    verdict = Verdict("fixed", "contract", RULE, fingerprint("fixed", identity), "no room")
    hunt = writes.start_hunt(store, *NAMES, 1, {})
    writes.record_verdict(store, hunt, *NAMES, verdict, SEED_BUG, 12, 1, 0.5)
    out = tmp_path / "out"
    answer = schedfuzz("export", 1, "--out", out, env=env)
    assert answer.returncode == 0, answer.stderr
    [file] = out.iterdir()
    assert answer.stdout.strip() == str(file)
    code, told = plain_pytest(environment_028, file)
    assert code == 1 and "1 failed" in told and "2: 66 computed + 1 sampled" in told
    code, told = plain_pytest(environment_029, file)
    assert code == 0 and "1 passed" in told
    for environment in (environment_028, environment_029):
        code, told = python(environment, "-c", "import schedfuzz", cwd=out)
        assert code == 1 and "No module named 'schedfuzz'" in told


# Too few blocks for both, so one is preempted while its drafts are being accepted.
STARVING = Scenario(
    Engine(66, 10, block_size=8, max_num_batched_tokens=24, num_speculative_tokens=2),
    (Request(0, Prompt(30), 30, accept=(2, 1, 0)),
     Request(1, Prompt(33, 3), 20, arrival=1, accept=(2,))),
    (ResetPrefixCache(7, preempt_running=True),),
)  # fmt: skip
# name -> (scenario, a rule that a correct release keeps)
FORMS: dict[str, tuple[Scenario, str]] = {
    "plain": (PLAIN, "token-budget"),
    "eventful": (EVENTFUL, "blocks-left"),
    "drafting": (DRAFTING, "draft-width"),
    "urgent": (URGENT, "requests-left"),
    "odd": (ODD, "token-total"),
    "starving": (STARVING, "misplaced-sample"),
    "starving, urgent": (
        replace(STARVING, engine=replace(STARVING.engine, policy="priority")), "seats",
    ),
    "starving, async": (
        replace(STARVING, engine=replace(STARVING.engine, async_scheduling=True)), "blocks-left",
    ),
    "drafting, async": (
        replace(DRAFTING, engine=replace(DRAFTING.engine, async_scheduling=True)), "deadlock",
    ),
}  # fmt: skip


def test_every_form_passes_on_a_release_that_keeps_the_rule(
    shared_home: Home, tmp_path: Path, environment_029: Environment
) -> None:
    """The story's steps, drafts and order must be those of the trace: no step more is allowed."""
    files = []
    with Pair(parse_target("0.29.0"), parse_target("0.29.0"), shared_home, print) as pair:
        for name, (scenario, rule) in FORMS.items():
            scenario = validate(scenario)
            fine, _ = pair.run(scenario)
            assert fine.outcome == "finished", (name, fine.violations or fine.reason)
            # As if the release had broken it, so that its own trace tells the story.
            blamed = bad(broken(rule, "running", fine.steps[-1].index), *fine.steps)
            verdict = Verdict("fixed", "contract", rule, "0" * 16)
            text = build_case(scenario, verdict, NAMES, blamed, fine).text
            last = max(when(scenario))
            steps = fine.steps[-1].index + 1 - last
            exact = text.replace(f"limit={len(fine.steps) + 20}", f"limit={steps}")
            assert exact != text
            path = tmp_path / f"test_{name.replace(', ', '_')}.py"
            path.write_text(exact)
            files.append(path)
    code, told = plain_pytest(environment_029, *files)
    assert code == 0 and f"{len(FORMS)} passed" in told, told[-3000:]


# A window that is hit in part, a conversation's output, an adapter: no story tells them.
WINDOW = Scenario(
    Engine(18, 5, groups=(Group("sliding_window", window=2),)),
    (Request(0, Prompt(16), 1), Request(1, Prompt(17), 1)),
)  # fmt: skip
SESSION = Scenario(
    Engine(9, 2, async_scheduling=True, num_speculative_tokens=1),
    (Request(0, Prompt(1), 7, accept=(1,), turns=(Turn(6, 1, 1),)),),
)  # fmt: skip
ADAPTER = replace(
    SEED_BUG, engine=replace(SEED_BUG.engine, max_loras=1),
    requests=tuple(replace(request, lora=1) for request in SEED_BUG.requests),
)  # fmt: skip
KINDS = {"changed": WINDOW, "both": SESSION, "fixed": ADAPTER}


@pytest.fixture
def env(shared_home: Home, tmp_path: Path, environment_028, environment_029) -> dict[str, str]:
    """Return the variables of a database with a finding of each of KINDS."""
    env = {"SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_DB": f"sqlite:///{tmp_path}/db"}
    store = open_store(env["SCHEDFUZZ_DB"])
    hunt = writes.start_hunt(store, *NAMES, 1, {})
    with Pair(parse_target("0.28.0"), parse_target("0.29.0"), shared_home, print) as pair:
        for name, scenario in KINDS.items():
            verdict = judge(*pair.run(validate(scenario)))
            assert verdict.verdict == name
            writes.record_verdict(store, hunt, *NAMES, verdict, validate(scenario), 12, 1, 0.5)
    return env


def both(folder: Path, *environments: Environment) -> list[str]:
    """Return the last line of plain pytest on a folder, in environments that hold schedfuzz."""
    beside = {"PYTHONPATH": str(Path(__file__).parents[1])}
    runs = [
        subprocess.run(
            [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
            env={**environment.variables(), **beside}, capture_output=True, text=True,
        )
        for environment in environments
    ]  # fmt: skip
    return [run.stdout.strip().splitlines()[-1].partition(" in ")[0] for run in runs]


def test_what_only_the_driver_can_play_leaves_the_house_too(
    env: dict[str, str], tmp_path: Path, environment_028: Environment, environment_029: Environment
) -> None:
    answer = schedfuzz("export", 1, 2, 3, "--out", tmp_path / "out", env=env)
    assert answer.returncode == 0, answer.stderr
    files = [Path(line) for line in answer.stdout.split()]
    assert len(files) == 3 and all("driver.play" in file.read_text() for file in files)
    assert both(tmp_path / "out", environment_028, environment_029) == [
        "2 failed, 1 passed", "2 failed, 1 passed",
    ]  # fmt: skip


def test_many_findings_in_one_file(
    env: dict[str, str], tmp_path: Path, environment_028: Environment, environment_029: Environment
) -> None:
    answer = schedfuzz("export", 1, 2, 3, "--together", "--out", tmp_path / "out", env=env)
    assert answer.returncode == 0, answer.stderr
    [file] = (tmp_path / "out").iterdir()
    assert str(file) == answer.stdout.strip()
    assert both(file, environment_028, environment_029) == [
        "2 failed, 1 passed", "2 failed, 1 passed",
    ]  # fmt: skip


def test_a_patch_brings_the_tests_into_a_checkout(
    env: dict[str, str], tmp_path: Path, environment_028: Environment, environment_029: Environment
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "tests").mkdir(parents=True)
    (checkout / "tests" / "old.py").write_text("")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "first")
    answer = schedfuzz("export", 2, 3, "--format", "patch", "--out", tmp_path / "out", env=env)
    assert answer.returncode == 0, answer.stderr
    git(checkout, "apply", "--check", answer.stdout.strip())
    git(checkout, "apply", "--index", answer.stdout.strip())
    assert len(git(checkout, "diff", "--cached", "--name-only").split()) == 2
    assert both(checkout / "tests" / "v1" / "core", environment_028, environment_029) == [
        "2 failed", "1 failed, 1 passed",
    ]  # fmt: skip


def test_a_case_of_the_real_runner_is_played_on_it(env: dict[str, str], tmp_path: Path) -> None:
    store = open_store(env["SCHEDFUZZ_DB"])
    real = ("0.28.0:real", "0.29.0:real")
    bug = replace(SEED_BUG, engine=replace(SEED_BUG.engine, block_size=limits.KERNEL_BLOCK))
    identity = key(violation(RULE, "", 0, path="new"))
    verdict = Verdict("fixed", "contract", RULE, fingerprint("fixed", identity), "no room")
    hunt = writes.start_hunt(store, *real, 1, {})
    number, _ = writes.record_verdict(store, hunt, *real, verdict, bug, 12, 1, 0.5)
    answer = schedfuzz("export", number, "--together", "--out", tmp_path / "out", env=env)
    assert answer.returncode == 0, answer.stderr
    assert 'runner="real"' in Path(answer.stdout.strip()).read_text()


def when(scenario: Scenario) -> list[int]:
    """Return the times of everything that a scenario brings."""
    return [r.arrival for r in scenario.requests] + [e.step for e in scenario.events]
