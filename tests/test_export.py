"""Exported files: self-contained, lint-clean, true to the story, and hostile text stays text."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from exported import (
    CRASH,
    ENGINE,
    FINDINGS,
    FINE,
    NAMES,
    ODD,
    PLAIN,
    bad,
    broken,
    case,
)  # fmt: skip
from fabricated import FIRST, OTHER, SECOND, step, trace
from msgspec.structs import replace

from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.events import Pause
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Output, Scheduled, Trace, Verdict, Violation
from schedfuzz.fuzzer.driven import Driven, driven_text
from schedfuzz.fuzzer.export import CHECKS, MAX_NAME, build_case
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.retell import accepted_drafts
from schedfuzz.fuzzer.told import told

RUFF = str(Path(sys.executable).parent / "ruff")
# As vLLM's own configuration: its package counts as first party.
LINT = [
    "check", "--isolated", "--select", "E,F,I,UP,B", "--line-length", "88",
    "--config", 'lint.isort.known-first-party=["vllm"]',
]  # fmt: skip
FORMAT = ["format", "--isolated", "--check", "--diff", "--line-length", "88"]


def story(text: str) -> str:
    """Return the source of the test function's body."""
    function = ast.parse(text).body[-1]
    assert isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
    return ast.unparse(function)


@pytest.mark.parametrize("name", FINDINGS)
def test_a_file_is_self_contained_python_and_says_what_breaks(name: str) -> None:
    made = case(*FINDINGS[name])
    tree = ast.parse(made.text)
    assert "schedfuzz" not in made.text
    assert re.fullmatch(r"test_[a-z0-9_]+_[0-9a-f]{8}\.py", made.filename)
    assert len(made.filename) <= MAX_NAME + len("test_") + len("_01234567.py")
    words = " ".join((ast.get_docstring(tree) or "").split())
    assert "ails on vLLM" in words
    _, before, after = FINDINGS[name]
    found = (before.violations or after.violations)[0]
    assert (RULES[found.rule][1][1:] if found.rule in RULES else found.rule) in words
    compile(made.text, made.filename, "exec")


def test_all_files_are_formatted_and_lint_clean(tmp_path: Path) -> None:
    for number, name in enumerate(FINDINGS):
        made = case(*FINDINGS[name])
        (tmp_path / f"test_{number:02}_{name.replace(' ', '_')}.py").write_text(made.text)
    for arguments in (LINT, FORMAT):
        answer = subprocess.run(
            [RUFF, *arguments, "--no-cache", str(tmp_path)], capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr


# -- data stays data -----------------------------------------------------------------------------

HOSTILE = [
    'a "quoted" word',
    '""" + __import__("os").system("x") + """',
    "''' or \\''' or \\\"\"\"",
    "ends with a backslash \\",
    'ends with a quote "',
    "line\none\r\nline two\u2028three\x85four\x0cfive",
    "raw \\n \\x00 \\N{DASH} \\u12 escapes",
    "nul \x00 bell \x07 escape \x1b[31m delete \x7f",
    "wide 日本語 é ﷽ 🦀 \u202e\u200b",
    "lone \ud800 surrogate",
    "{{ engine }} {% raw %} {# note #} {{ '{{' }}",
    "#!/bin/sh # type: ignore # noqa",
    "%s %(x)s {0} {x!r} $(id) `id`",
    "x" * 300,
    '"' * 200,
    "\\" * 201,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:30])
@pytest.mark.parametrize("field", ["detail", "rule", "function"])
def test_hostile_text_stays_in_the_docstring(text: str, field: str, tmp_path: Path) -> None:
    def made(found: Violation) -> ast.Module:
        after = replace(FINE, reason=text)
        text_of = build_case(PLAIN, Verdict("fixed", "crash", fingerprint="0" * 16),
                             NAMES, bad(found), after).text  # fmt: skip
        (tmp_path / "test_case.py").write_text(text_of)
        return ast.parse(text_of)

    tree = made(replace(CRASH, **{field: text}))
    first = tree.body[0]
    assert isinstance(first, ast.Expr)
    words = " ".join(ast.literal_eval(first.value).split())
    shown = text.split(":")[-1] if field == "function" else text
    assert " ".join(re.sub(r"\s", " ", shown).replace('"', "'").split()) in words
    answer = subprocess.run(
        [RUFF, *LINT, "--no-cache", str(tmp_path)], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stdout
    # All else is the same code, but for the name of the test.
    plain = made(CRASH)
    for one in (tree, plain):
        assert isinstance(one.body[-1], ast.FunctionDef)
        assert re.fullmatch(r"test_[a-z0-9_]*", one.body[-1].name)
        one.body[-1].name = "test_it"
    assert ast.dump(ast.Module(tree.body[1:], [])) == ast.dump(ast.Module(plain.body[1:], []))


# -- the story -----------------------------------------------------------------------------------


def test_the_story_comes_in_order_with_the_steps_between() -> None:
    lines = story(case(*FINDINGS["deadlock"]).text).splitlines()[2:]
    assert lines == [
        "    add_request(engine, '0', prompt=list(range(10000, 10040)), max_tokens=20)",
        "    step(engine)",
        "    engine.reset_prefix_cache(reset_running_requests=False)",
        "    step(engine)",
        "    add_request(engine, '1', prompt=list(range(10000, 10017)) + "
        "list(range(10020000, 10020024)), max_tokens=9)",
        "    step(engine)",
        "    engine.aborts_queue.put(['0'])",
        "    step(engine)",
        "    engine.reset_prefix_cache(reset_running_requests=True)",
        "    step(engine, times=3)",
        "    add_request(engine, '10000', prompt=[110010000], max_tokens=1)",
        "    step(engine, times=2)",
        "    engine.abort_requests(['1'])",
        "    run_to_end(engine, limit=25)",
    ]


def test_free_blocks_are_counted_before_anything_runs() -> None:
    lines = story(case(*FINDINGS["blocks-left"]).text).splitlines()
    assert lines[3] == "    free_blocks = block_pool.get_num_free_blocks()"
    assert lines[-1] == "    assert block_pool.get_num_free_blocks() == free_blocks"


def test_a_request_left_is_looked_for_at_the_end() -> None:
    assert story(case(*FINDINGS["requests-left"]).text).endswith(
        "\n    assert not engine.scheduler.requests"
    )


def test_passed_over_ends_at_the_step_that_broke_the_rule() -> None:
    late = story(case(*FINDINGS["passed-over"]).text).splitlines()
    assert late[-2:] == [
        "    step(engine, times=8)", "    assert '1' in engine.model_executor.scheduled",
    ]  # fmt: skip
    early = story(case(*FINDINGS["passed-over early"]).text)
    assert "'10000'" not in early and "abort_requests" not in early  # both come later
    assert "times=3)\n    assert '1' in" in early


def test_a_resumed_request_must_be_scheduled_after_its_last_preemption() -> None:
    text = case(*FINDINGS["passed-over resumed"]).text
    assert (
        "    engine.aborts_queue.put(['0'])\n    engine.model_executor.scheduled.clear()\n"
        "    step(engine)\n" in story(text)
    )


def test_equal_priorities_go_by_arrival_and_not_by_id() -> None:
    text = case(*FINDINGS["priority"]).text
    assert "arrival_time=float(next(ARRIVALS))" in text
    added = re.findall(r"add_request\(engine, '(\d+)'.*priority=(-?\d+)\)", story(text))
    assert added == [("10000", "3"), ("1", "6"), ("0", "0")]


def test_each_release_is_named_for_what_it_does() -> None:
    for name, sentence in {
        "seats": "Fails on vLLM 0.28.0 (contract seats: 9 > 8); passes on vLLM 0.29.0.",
        "regressed": "Passes on vLLM 0.28.0; fails on vLLM 0.29.0 (contract seats: 9 > 8).",
        "both": "Fails on vLLM 0.28.0 (contract seats: 9 > 8); fails on vLLM 0.29.0 (",
        "refused after": "; vLLM 0.29.0 refuses the configuration.",
    }.items():
        told = ast.get_docstring(ast.parse(case(*FINDINGS[name]).text)) or ""
        assert sentence in " ".join(told.split())


def test_refusing_the_configuration_passes() -> None:
    assert "except ValueError" in story(case(*FINDINGS["refused after"]).text)
    assert "except ValueError" not in story(case(*FINDINGS["seats"]).text)


def test_accepted_drafts_are_told_by_position() -> None:
    tree = ast.parse(case(*FINDINGS["many accepted drafts"]).text)
    [value] = [
        node.value for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ACCEPTED"
    ]  # fmt: skip
    per = {4095 + 3 * turn: 2 for turn in range(30)}
    assert ast.literal_eval(value) == {"9000": per, "9001": per}


def test_what_was_in_flight_at_a_preemption_counts_no_more() -> None:
    """Async: the lost token is sampled again, even when the way back takes two chunks."""
    request = PLAIN.requests[0].id
    run = trace(
        step(0, Scheduled(request, "new", 0, 40, 0, 5, 1)),
        step(1, Scheduled(request, "running", 40, 1, 0, 6, 1)),
        step(2, Scheduled(request, "resumed", 0, 32, 0, 6, 0), preempted=(request,)),
        step(3, Scheduled(request, "running", 32, 9, 0, 6, 1)),
        step(4, Scheduled(request, "running", 41, 3, 2, 6, 2)),
    )
    assert accepted_drafts(PLAIN, run) == {"0": {41: 1}}


# -- what the driver plays -----------------------------------------------------------------------

HANG = Violation("hang", "cpu-limit", "used up", 3, function="vllm.a:f")
DIED = Violation("crash", "process-died", "SIGABRT", 3)
OTHER_OUTPUT = replace(trace(FIRST, SECOND), outputs=(Output(0, (1,), "stop"),))
DRIVEN: dict[str, tuple[Scenario, Trace, Trace]] = {
    "changed": (PLAIN, trace(FIRST, SECOND), trace(FIRST, OTHER)),
    "shorter": (PLAIN, trace(FIRST, SECOND), trace(FIRST)),
    "outputs": (PLAIN, trace(FIRST, SECOND), OTHER_OUTPUT),
    "hang": (PLAIN, bad(HANG), FINE),
    "process-died": (PLAIN, bad(DIED), FINE),
    "runner": (PLAIN, bad(replace(CRASH, component="runner")), FINE),
    "misplaced-sample in flight": (ODD, bad(broken("misplaced-sample")), FINE),
    "field": (replace(PLAIN, engine=replace(ENGINE, watermark_percent=5)), bad(CRASH), FINE),
    "event": (replace(PLAIN, events=(Pause(2),)), bad(CRASH), FINE),
    **{
        rule: (PLAIN, bad(broken(rule)), FINE)
        for rule, (kind, _) in RULES.items()
        if kind in ("contract", "corruption") and rule not in CHECKS
    },
}


@pytest.mark.parametrize("name", DRIVEN)
def test_what_has_no_story_is_played_by_the_driver(name: str) -> None:
    scenario, before, after = DRIVEN[name]
    made = case(scenario, before, after)
    assert made.driven
    assert re.fullmatch(r"test_[a-z0-9_]+_[0-9a-f]{8}\.py", made.filename)
    values: dict[str, str] = {}
    tree = ast.parse(made.text)
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            assert isinstance(node.targets[0], ast.Name)
            values[node.targets[0].id] = str(node.value.value)
    pinned = [values.pop(key) for key in list(values) if key.endswith("_BEFORE")]
    (text,) = values.values()
    assert decode(text) == scenario
    if before.violations:
        assert not pinned and "driver.broken(trace)" in made.text
    else:
        step = re.search(r"step=(\d+)", made.text)
        at = int(step[1]) if step else None
        assert pinned == [told(before, at)] != [told(after, at)]


def test_driven_files_are_formatted_and_lint_clean(tmp_path: Path) -> None:
    for number, (scenario, before, after) in enumerate(DRIVEN.values()):
        (tmp_path / f"test_{number:02}.py").write_text(case(scenario, before, after).text)
    many = [
        Driven(scenario, judge(before, after), before, after, real=True)
        for scenario, before, after in DRIVEN.values()
    ]
    (tmp_path / "test_many.py").write_text(driven_text("Many.", many))
    for arguments in (LINT, FORMAT):
        answer = subprocess.run(
            [RUFF, *arguments, "--no-cache", str(tmp_path)], capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:30])
def test_hostile_text_stays_text_beside_the_driver(text: str) -> None:
    def made(title: str, outcome: str) -> ast.Module:
        found = Verdict("changed", "divergence", "outcome:x", "0" * 16, title, title)
        after = replace(FINE, reason=text)
        one = Driven(PLAIN, found, replace(FINE, outcome=outcome), after)  # type: ignore[arg-type]
        return ast.parse(driven_text("Words.", [one]))

    hostile, plain = made(text, "finished"), made("plain", "finished")
    for tree in (hostile, plain):
        assert isinstance(tree.body[-1], ast.FunctionDef)
        assert re.fullmatch(r"test_[a-z0-9_]*", tree.body[-1].name)
        tree.body[-1].name = "test_it"
    assert ast.dump(hostile) == ast.dump(plain)


def test_every_check_is_a_contract_rule() -> None:
    assert {RULES[rule][0] for rule in CHECKS} == {"contract"}
