"""The verbs that decide about findings, as a person or a script would use them."""

import contextlib
import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest
from command import SCHEDFUZZ
from fabricated import SMALL

from schedfuzz.cli.main import run
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import writes
from schedfuzz.db.connect import Store, open_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    url = f"sqlite:///{tmp_path / 'decide.db'}"
    monkeypatch.setenv("SCHEDFUZZ_DB", url)
    monkeypatch.setenv("SCHEDFUZZ_USER", "ann")
    made = open_store(url)
    hunt = writes.start_hunt(made, "0.28.0", "0.29.0", 1, {})
    for name in "abc":
        verdict = Verdict("fixed", "contract", "token-budget", name, f"title of {name}", "9 > 8")
        writes.record_verdict(made, hunt, "0.28.0", "0.29.0", verdict, SMALL, 3, 17, 2.5)
    return made


def cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def statuses(capsys: pytest.CaptureFixture[str]) -> list[str]:
    rows = json.loads(cli(capsys, "findings", "--all", "--sort", "id", "--json")[1])
    return [row["status"] for row in rows]


PAIRS = [
    (("report", "1", "2", "--note", "PR 5"), "reported", "reopen"),
    (("resolve", "1", "2", "--in", "0.29.0"), "fixed-in", "reopen"),
    (("dup", "1", "2", "--of", "3"), "dup", "undup"),
    (("merge", "1", "2", "--into", "3"), "dup", "undup"),
    (("mute", "1", "2", "--until", "30d"), "muted", "unmute"),
    (("invalid", "1", "2"), "invalid", "reopen"),
]


@pytest.mark.parametrize(("verb", "status", "inverse"), PAIRS, ids=lambda value: str(value)[:12])
def test_every_decision_has_an_inverse(store, capsys, verb, status, inverse) -> None:
    assert cli(capsys, *verb) == (0, f"finding 1\t{status}\nfinding 2\t{status}\n", "")
    assert statuses(capsys) == [status, status, "new"]
    assert cli(capsys, inverse, "1", "2", "--by", "bob")[0] == 0
    assert statuses(capsys) == ["new"] * 3
    story = cli(capsys, "show", "1")[1]
    assert f"{verb[0]} by ann, status new -> {status}" in story
    assert f"{inverse} by bob" in story
    code, out, err = cli(capsys, inverse, "1")
    assert (code, out) == (2, "") and "finding 1" in err and err.count("\n") == 1


def test_a_list_hides_what_is_put_aside_and_says_so(store, capsys) -> None:
    cli(capsys, "invalid", "2")
    _, out, err = cli(capsys, "findings", "--columns", "id,title", "--limit", "1")
    assert "title of a" in out and "title of c" not in out
    assert err == "1 of 2 findings\n1 more are verified, muted, dup or invalid; --all lists them\n"
    _, out, _ = cli(capsys, "findings", "--status", "invalid", "--columns", "id")
    assert out.split() == ["id", "──", "2"] or "2" in out.split()
    cli(capsys, "invalid", "1", "3")
    assert "no open finding; 3 more" in cli(capsys, "findings")[2]
    code, _, err = cli(capsys, "findings", "--columns", "id,age")
    assert code == 2 and "'age' is no column" in err


def test_a_muting_with_a_wrong_moment_is_refused(store, capsys) -> None:
    for until in ("soon", "2020-01-01", "99999999d", "2026-13-01"):
        code, _, err = cli(capsys, "mute", "1", "--until", until)
        assert code == 2 and err.count("\n") == 1, until
    assert statuses(capsys) == ["new"] * 3


def test_a_rule_mutes_and_an_unused_one_is_reported(store, capsys) -> None:
    because = ("--owner", "ann", "--reason", "soft", "--until", "30d")
    code, out, _ = cli(capsys, "rule", "add", "title=*[ab]", "rule=token-*", *because, "--pr", "7")
    assert (code, out) == (0, "rule 1\t2 findings muted\n")
    cli(capsys, "rule", "add", "kind=leak", *because)
    assert statuses(capsys) == ["muted", "muted", "new"]
    rules = json.loads(cli(capsys, "rule", "list", "--json")[1])
    assert [(row["state"], row["muted"], row["pr"]) for row in rules] == [
        ("in use", 2, "7"), ("unused", 0, None),
    ]  # fmt: skip
    text = cli(capsys, "rule", "list")[1]
    assert "kind=leak\tunused\t0 muted, 0 ever" in text and "ann: soft (7)" in text
    assert cli(capsys, "rule", "remove", "1")[1] == "rule 1\tremoved, 2 findings open again\n"
    assert statuses(capsys) == ["new"] * 3
    for wrong in ("kind", "kind=", "age=3"):
        code, _, err = cli(capsys, "rule", "add", wrong, *because)
        assert code == 2 and err.count("\n") == 1


def test_a_sighting_is_split_off_and_merged_back(store, capsys) -> None:
    verdict = Verdict("fixed", "contract", "token-budget", "a", "title of a", "9 > 8")
    other = SMALL.__class__(SMALL.engine, SMALL.requests * 1, ())
    writes.record_verdict(store, 1, "0.28.0", "0.29.0", verdict, other, 3, 18, 2.6)
    code, _, err = cli(capsys, "split", "1")
    assert code == 2 and "write one of" in err
    code, _, err = cli(capsys, "split", "1", "--scenario", err.split()[-1])
    assert code == 2 and "needs it itself" in err


def test_a_note_is_kept_as_text(store, capsys) -> None:
    assert cli(capsys, "note", "1", "\x1b[31mred\nline") == (0, "finding 1\tnoted\n", "")
    story = cli(capsys, "show", "1")[1]
    assert "\x1b" not in story and "note by ann: \\x1b[31mred" in story


# -- the keyboard --------------------------------------------------------------------------------


def test_triage_wants_a_terminal(store, capsys) -> None:
    code, _, err = cli(capsys, "triage")
    assert code == 2 and "no terminal" in err


class Keyboard:
    """A terminal that schedfuzz triage runs on."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [SCHEDFUZZ, "triage"], stdin=slave, stdout=slave, stderr=slave, close_fds=True
        )
        os.close(slave)
        self.seen = ""

    def wait(self, text: str, seconds: float = 60) -> bool:
        """Read on until the text is seen; return whether it was."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            if time.monotonic() > end:
                return False
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 4096).decode()
                except OSError:
                    break
        found = text in self.seen
        self.seen = self.seen.partition(text)[2]
        return found

    def press(self, key: str, then: str) -> None:
        """Press a key at the prompt; one that comes before the prompt listens is lost."""
        assert self.wait("] > ")
        for _ in range(10):
            os.write(self.master, key.encode())
            if self.wait(then, 5):
                return
        raise AssertionError(f"{then!r} was not seen: {self.seen}")

    def quit(self) -> int | None:
        """Press q at the prompt until it ends."""
        assert self.wait("] > ")
        for _ in range(10):
            os.write(self.master, b"q")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(5)
        return None

    def say(self, text: str, then: str) -> None:
        """Answer a question."""
        os.write(self.master, f"{text}\n".encode())
        assert self.wait(then), self.seen


def test_each_key_decides_and_the_last_decision_is_undone(store, capsys) -> None:
    terminal = Keyboard()
    try:
        terminal.press("r", "where")
        terminal.say("PR 5", "finding 1\treported")
        terminal.press("d", "dup of finding")
        terminal.say("99", "finding 99: not in")
        terminal.press("m", "until")
        terminal.say("30d", "why")
        terminal.say("", "finding 2\tmuted")
        terminal.press("u", "finding 2  fixed")
        terminal.press("s", "the rule: ")
        terminal.press("n", "finding 3  fixed")
        assert terminal.quit() == 0
    finally:
        terminal.process.kill()
        os.close(terminal.master)
    assert statuses(capsys) == ["reported", "new", "new"]
