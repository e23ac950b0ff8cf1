"""The look verbs on a database, and the replay verb on fabricated runs: no vLLM."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command import schedfuzz
from fabricated import CONTRACT, FIRST, OTHER, SECOND, SMALL, FakePair, trace

from schedfuzz.cli import replay as replay_module
from schedfuzz.cli.diff import diff
from schedfuzz.cli.findings import findings
from schedfuzz.cli.main import run
from schedfuzz.cli.replay import replay
from schedfuzz.cli.show import show
from schedfuzz.cli.sides import sides_table
from schedfuzz.cli.source import load_scenario
from schedfuzz.corpus import codec
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.db import traces, writes
from schedfuzz.db.connect import Store, open_store

WILD = "[red]no[/red] :smile: \x1b[31mmarkup"
TRANSFORM = "0.28.0+mend.py:mend@0123abcd"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SCHEDFUZZ_DB", f"sqlite:///{tmp_path / 'look.db'}")
    return open_store(f"sqlite:///{tmp_path / 'look.db'}")


def add(
    store: Store, name: str, kind: str, title: str = "a title", before: str = "0.28.0",
    rule: str = "a-rule",
) -> int:  # fmt: skip
    verdict = Verdict(name, kind, rule, f"{name}-{kind}-{title[:4]}", title, "a detail")  # type: ignore[arg-type]
    hunt = writes.start_hunt(store, before, "0.29.0", 1, {})
    return writes.record_verdict(
        store, hunt, before, "0.29.0", verdict, SMALL, 3, 17, 2.5
    )[0]  # fmt: skip


def look(*arguments: str) -> Result:
    command = {"findings": findings, "show": show, "diff": diff}[arguments[0]]
    return CliRunner().invoke(command, arguments[1:], catch_exceptions=False)


def test_findings_come_news_first_and_filtered(store: Store) -> None:
    for name, kind in (
        ("changed", "divergence"), ("both", "crash"), ("fixed", "contract"), ("fixed", "crash"),
        ("regressed", "leak"),
    ):  # fmt: skip
        add(store, name, kind)
    rows = json.loads(look("findings", "--json").stdout)
    assert [(row["verdict"], row["kind"]) for row in rows] == [
        ("regressed", "leak"), ("fixed", "crash"), ("fixed", "contract"), ("both", "crash"),
        ("changed", "divergence"),
    ]  # fmt: skip
    one = json.loads(look("findings", "--json", "--verdict", "fixed", "--kind", "crash").stdout)
    assert [row["id"] for row in one] == [rows[1]["id"]]
    assert json.loads(look("findings", "--json", "--before", "0.30.0").stdout) == []
    assert set(rows[0]) == {
        "id", "before", "after", "verdict", "kind", "rule", "component", "fingerprint", "title",
        "status", "count", "executions_to_find", "seconds_to_find", "reproducer",
    }  # fmt: skip
    assert rows[0]["reproducer"]["scenario"] == json.loads(codec.encode(SMALL))


def test_a_row_is_one_line_and_data_is_never_markup(store: Store) -> None:
    add(store, "fixed", "contract", WILD + " and much more of it" * 20)
    lines = [line for line in look("findings").stdout.splitlines() if "contract" in line]
    assert len(lines) == 1
    assert "[red]no[/red] :smile: \\x1b[31mmarkup and" in lines[0]
    assert "\\x1b[31m" in look("show", "1").stdout


def test_no_finding_says_so_and_leaves_stdout_empty(store: Store) -> None:
    result = look("findings")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "schedfuzz hunt" in result.stderr


def test_show_tells_the_whole_story(store: Store) -> None:
    number = add(store, "fixed", "contract", rule="seats")
    writes.record_confirmation(store, number, 3, 2)
    writes.save_reproducer(store, number, SMALL, 2, 41, "partial")
    text = look("show", str(number)).stdout
    for part in (
        "a title", "a detail", "fixed  contract  seats", "0.28.0 and 0.29.0", "1 times",
        f"the rule: {RULES['seats'][1]}\n",
        "17 executions, 2.5 s", "2 of 3 runs", "partial, 41 calls", codec.pretty(SMALL),
        f"schedfuzz replay {number} 0.28.0 0.29.0", f"schedfuzz export {number} --out",
        f"schedfuzz minimize {number}\n",
    ):  # fmt: skip
        assert part in text
    shown = json.loads(look("show", str(number), "--json").stdout)
    assert (shown["confirm_hits"], shown["minimize_state"]) == (2, "partial")


def test_a_transform_is_spelled_for_the_reader_to_complete(store: Store) -> None:
    number = add(store, "fixed", "starvation", before=TRANSFORM)
    pair = "0.28.0+PATH/TO/mend.py:mend 0.29.0"
    text = look("show", str(number)).stdout
    assert f"schedfuzz replay {number} {pair}\n" in text
    assert f"schedfuzz minimize {number} {pair}\n" in text
    refused = schedfuzz("minimize", number, env={"SCHEDFUZZ_DB": store.name})
    assert refused.returncode == 2
    assert f"write `schedfuzz minimize {number} {pair}`" in refused.stderr
    other = schedfuzz("minimize", number, "0.28.0", "0.29.0", env={"SCHEDFUZZ_DB": store.name})
    assert other.returncode == 2
    assert f"target 0.28.0: finding {number} is on {TRANSFORM}" in other.stderr


def test_schedules_are_looked_at_without_a_target(store: Store) -> None:
    number = add(store, "fixed", "contract", rule="token-budget")
    assert run(["diff", str(number)]) == 2
    traces.save(store, number, SMALL, BROKEN, GOOD)
    shown = look("diff", str(number)).stdout
    assert "first differing step: step 1: request 0 tokens 1 / 3" in shown
    assert "0.28.0: step 1, r0: contract: token-budget" in shown
    assert "r0 new 0+5 ->1" in shown
    assert "r0 new 0+5 ->1" not in look("diff", str(number), "--around", "0").stdout
    value = json.loads(look("diff", str(number), "--json").stdout)
    assert (value["verdict"], len(value["before"]["steps"])) == ("fixed", 2)
    story = look("show", str(number)).stdout
    assert "0.28.0 breaks the rule and 0.29.0 keeps it\n" in story
    assert "first differing step: step 1: request 0 tokens 1 / 3" in story


# -- replay on fabricated runs -------------------------------------------------------------------


def replayed(monkeypatch: pytest.MonkeyPatch, traces: tuple[Trace, Trace], *options: str) -> Result:
    monkeypatch.setattr(replay_module, "start_pair", lambda *_: FakePair(*traces))
    arguments = ["-", "0.28.0", "0.29.0", *options]
    return CliRunner().invoke(
        replay, arguments, input=codec.pretty(SMALL), standalone_mode=False, catch_exceptions=False
    )


GOOD = trace(FIRST, SECOND)
CHANGED = trace(FIRST, OTHER)
BROKEN = trace(FIRST, OTHER, violations=(CONTRACT,))


@pytest.mark.parametrize(
    ("traces", "options", "verdict", "code"),
    [
        ((GOOD, GOOD), (), "clean", 0),
        ((GOOD, GOOD), ("--strict",), "clean", 0),
        ((GOOD, CHANGED), (), "changed", 0),
        ((GOOD, CHANGED), ("--strict",), "changed", 3),
        ((BROKEN, GOOD), (), "fixed", 3),
        ((GOOD, BROKEN), (), "regressed", 3),
        ((BROKEN, BROKEN), (), "both", 3),
    ],
)
def test_replay_exits_by_verdict(monkeypatch, traces, options, verdict, code) -> None:
    assert replayed(monkeypatch, traces, *options).return_value == code
    shown = replayed(monkeypatch, traces, *options, "--json")
    value = json.loads(shown.stdout)
    assert (value["verdict"], shown.return_value) == (verdict, code)
    assert {"verdict", "kind", "rule", "before", "after"} <= set(value)
    assert value["before"]["outputs"] == [
        {"request": 0, "tokens": [1, 2], "finish_reason": "length"}
    ]
    share = value["after"]["steps"][0]["scheduled"][0]
    assert share == {
        "request": 0, "path": "new", "start": 0, "tokens": 5, "drafts": 0, "blocks": 1,
        "sampled": 1,
    }  # fmt: skip


def test_what_could_not_be_run_is_a_fault_not_a_verdict(monkeypatch, capsys, tmp_path) -> None:
    lost = Trace("infra", reason="worker ended by SIGKILL")
    monkeypatch.setattr(replay_module, "start_pair", lambda *_: FakePair(lost, GOOD))
    file = tmp_path / "small.json"
    file.write_text(codec.pretty(SMALL))
    assert run(["replay", str(file), "0.28.0", "0.29.0"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("infra")
    assert err == "schedfuzz: the scenario could not be run: worker ended by SIGKILL\n"


def test_what_a_release_lacks_is_no_verdict(monkeypatch, capsys, tmp_path) -> None:
    lacking = Trace("unsupported", reason="engine.async_scheduling false")
    monkeypatch.setattr(replay_module, "start_pair", lambda *_: FakePair(GOOD, lacking))
    file = tmp_path / "small.json"
    file.write_text(codec.pretty(SMALL))
    assert run(["replay", str(file), "0.28.0", "0.29.0"]) == 2
    assert capsys.readouterr() == (
        "", "schedfuzz: target 0.29.0: it plays engine.async_scheduling = false only; "
        "change the scenario or name another target\n",
    )  # fmt: skip


def test_the_reason_stands_on_top_of_the_steps(monkeypatch) -> None:
    lines = replayed(monkeypatch, (BROKEN, GOOD)).stdout.splitlines()
    assert lines[0].startswith("fixed  contract  token-budget  ")
    sentence = RULES["token-budget"][1]
    broken = f"0.28.0: step 1, r0: contract: token-budget (running request): {sentence}: 9 > 8"
    assert lines[2] == broken
    rows = [" ".join(line.split()) for line in lines if line.startswith(" !!")]
    assert rows == ["!! 1 r0 running 5+1 ->1 7 r0 running 5+3 (2 drafts) ->1 7"]
    assert sum("!! token-budget" in line for line in lines) == 1
    changed = replayed(monkeypatch, (GOOD, CHANGED)).stdout.splitlines()
    assert "tokens of a running request" in changed[1]
    assert [line.split()[:2] for line in changed if line.startswith(" ~")] == [["~", "1"]]


def test_a_side_that_ends_early_leaves_its_cells_empty() -> None:
    table = sides_table("a", "b", trace(FIRST, SECOND), trace(FIRST))
    after = list(table.columns[5].cells)
    assert after == ["r0 new 0+5 ->1", ""]
    assert list(table.columns[0].cells) == ["", "~"]


def test_replay_reads_what_show_prints(store: Store, tmp_path: Path, monkeypatch) -> None:
    number = add(store, "fixed", "contract")
    shared = tmp_path / "finding.json"
    shared.write_text(look("show", str(number), "--json").stdout)
    story = load_scenario(str(shared), None)
    assert codec.encode(story) == codec.encode(SMALL)


def test_a_runners_finding_is_named(store: Store) -> None:
    hunt = writes.start_hunt(store, "0.28.0:real", "0.29.0:real", 1, {})
    verdict = Verdict("fixed", "crash", "KeyError", "f" * 16, "KeyError", component="runner")
    writes.record_verdict(store, hunt, "0.28.0:real", "0.29.0:real", verdict, SMALL, 3, 17, 2.5)
    text = look("show", "1").stdout
    assert "component     runner\n" in text
    assert "schedfuzz minimize 1\n" in text and "schedfuzz export 1 --out" in text
    assert json.loads(look("findings", "--json").stdout)[0]["component"] == "runner"


def test_show_suggests_only_what_can_help(store: Store) -> None:
    commands = look("show", str(add(store, "fixed", "contract", "one", rule="seats"))).stdout
    assert "schedfuzz export" in commands and "schedfuzz minimize" in commands
    number = add(store, "fixed", "corruption", "two", before=TRANSFORM)
    writes.save_reproducer(store, number, SMALL, 3, 10, "done")
    commands = look("show", str(number)).stdout
    assert "schedfuzz export" not in commands and "schedfuzz minimize" not in commands
    assert f"schedfuzz show {number} --json" in commands
