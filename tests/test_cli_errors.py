"""Bad input of every kind: one clear line on standard error, exit code 2, nothing on stdout."""

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from command import schedfuzz
from fabricated import FIRST, SMALL, FakePair, trace

from schedfuzz.cli import hunt as hunt_module
from schedfuzz.cli import minimize as minimize_module
from schedfuzz.cli.main import run
from schedfuzz.corpus import codec

PAIR = ("0.28.0", "0.29.0")
GOOD = json.loads(codec.encode(SMALL))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "SCHEDFUZZ_HOME": str(tmp_path / "home"),
        "SCHEDFUZZ_DB": f"sqlite:///{tmp_path / 'errors.db'}",
    }


def refused(env: dict[str, str], *arguments: object, stdin: str = "") -> str:
    result = schedfuzz(*arguments, env=env, stdin=stdin)
    assert (result.returncode, result.stdout) == (2, ""), result
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def refused_here(env, monkeypatch, capfd) -> Callable[..., str]:
    """The same without a process of its own, for tables of cases."""
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: object, stdin: str = "") -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err.rstrip("\n")

    return call


def changed(part: str, **fields: object) -> str:
    value = json.loads(json.dumps(GOOD))
    node = value["requests"][0] if part == "requests" else value[part]
    node.update(fields)
    return json.dumps(value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ("not valid JSON",)),
        ("[]", ("array",)),
        (changed("engine", warp=9), ("warp", "unknown field")),
        (changed("engine", block_size=12), ("engine.block_size = 12", "must be one of")),
        (changed("requests", max_tokens=0), ("requests[0].max_tokens = 0", "between 1 and")),
        (changed("requests", max_tokens="9"), ("requests[0].max_tokens", '"9"')),
        (json.dumps(GOOD | {"schema": 99}), ("schema 99", "upgrade")),
    ],
)
def test_a_bad_scenario_is_named_with_its_cure(refused_here, tmp_path, text, parts) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    line = refused_here("replay", file, *PAIR)
    assert line.startswith(f"schedfuzz: {file}: ")
    for part in parts:
        assert part in line
    piped = refused_here("replay", "-", *PAIR, stdin=text)
    assert piped == line.replace(str(file), "standard input")


def test_a_process_says_the_same_on_its_own_standard_error(env, tmp_path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(changed("engine", block_size=12))
    line = refused(env, "replay", file, *PAIR)
    assert line.startswith(f"schedfuzz: {file}: engine.block_size = 12: must be one of")


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "missing.json", *PAIR),
        ("minimize", "missing.json", *PAIR),
        ("corpus", "import", *PAIR, "missing.json"),
    ],
)
def test_a_missing_file(env, arguments) -> None:
    assert "missing.json: no such scenario file" in refused(env, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "-", "banana", "0.29.0"),
        ("replay", "-", "0.29.0", "banana"),
        ("minimize", "x.json", "banana", "0.29.0"),
        ("corpus", "path", "banana", "0.29.0"),
        ("corpus", "merge", "0.28.0", "banana"),
        ("targets", "add", "banana"),
        ("hunt", "banana", "0.29.0", "--runs", "1"),
    ],
)
def test_an_unknown_release(refused_here, arguments) -> None:
    assert "'banana'" in refused_here(*arguments, stdin=codec.pretty(SMALL))


@pytest.mark.parametrize("verb", [("show",), ("minimize",), ("replay",), ("export",)])
def test_an_unknown_finding(refused_here, tmp_path, verb) -> None:
    rest = {"replay": PAIR, "export": ("--out", tmp_path / "out")}.get(verb[0], ())
    line = refused_here(*verb, "99", *rest)
    assert "finding 99: not in sqlite://" in line
    assert "`schedfuzz findings` lists them" in line


def test_a_foreign_database_is_refused_and_left_alone(env, tmp_path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    before = file.read_bytes()
    line = refused(env, "findings", "--db", f"sqlite:///{file}")
    assert "other.db" in line
    assert file.read_bytes() == before


def test_a_file_that_is_no_database(env, tmp_path) -> None:
    file = tmp_path / "text.db"
    file.write_text("not a database, but long enough to be looked at as one by its header" * 9)
    assert "not a SQLite file" in refused(env, "show", "1", "--db", f"sqlite:///{file}")


def test_a_home_that_cannot_be_used(env, tmp_path) -> None:
    (tmp_path / "home").write_text("in the way")
    line = refused(env, "corpus", "path", *PAIR)
    assert str(tmp_path / "home") in line
    assert "set SCHEDFUZZ_HOME to a writable directory" in line


def test_a_corpus_with_nothing_to_merge(refused_here) -> None:
    assert "no scenarios to merge; hunt first" in refused_here("corpus", "merge", *PAIR)


def test_a_scenario_with_nothing_to_minimize(refused_here, monkeypatch, tmp_path) -> None:
    clean = trace(FIRST)
    monkeypatch.setattr(minimize_module, "start_pair", lambda *_: FakePair(clean, clean))
    file, out = tmp_path / "clean.json", tmp_path / "out.json"
    file.write_text(codec.pretty(SMALL))
    line = refused_here("minimize", file, *PAIR, "--out", out)
    assert line == f"schedfuzz: {file}: this pair says clean, so nothing can be minimized"
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("minimize", "1", "0.28.0"), "give both BEFORE and AFTER"),
        (("minimize", "x.json"), "a SCENARIO file needs BEFORE and AFTER"),
        (("minimize", "1", "--out", "x.json"), "--out is for a SCENARIO file"),
        (("show", "first"), "'first' is no finding: write its number; `schedfuzz findings` lists"),
        (("show", "0"), "'0' is no finding"),
        (("show", "9" * 30), "is no finding"),
        (("export", "-1", "--out", "x"), "-1"),
        (("findings", "--verdict", "bad"), "'bad'"),
        (("corpus", "merge", *PAIR, "nowhere"), "'nowhere'"),
    ],
)
def test_bad_arguments_are_one_line(capfd, arguments, part) -> None:
    assert run([str(argument) for argument in arguments]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith(f"schedfuzz {arguments[0]}")
    assert err.endswith(" --help`\n")
    assert part in err


@pytest.mark.parametrize("text", ["nan", "-1", "inf", "1e999", "soon"])
@pytest.mark.parametrize(
    "verb", [("hunt", "0.28.0"), ("minimize", "1"), ("campaign", "add", "0.28.0")]
)
def test_no_time(refused_here, verb, text) -> None:
    line = refused_here(*verb, f"--time={text}")
    assert f"{text!r} is not a time; write it like 90, 90s, 10m or 2h" in line


def test_a_time_beyond_its_bounds(refused_here) -> None:
    line = refused_here("campaign", "add", "0.28.0", "--slice", "25h")
    assert "'25h' is not within 5 to 86,400 seconds; write it like 90, 10m or 2h" in line


def test_a_class_with_a_dot_in_the_place_of_the_colon(refused_here) -> None:
    for text, cure in (("mysched.Fair", "mysched:Fair"), ("a.b.Fair", "a.b:Fair")):
        line = refused_here("hunt", "0.29.0", "--scheduler-cls", text)
        assert line.endswith(f"{text!r} is not module:Class; write {cure}")
    assert "write a release like" in refused_here("hunt", "0.29.0", "--scheduler-cls", "x y")


def test_a_path_that_no_system_takes(refused_here) -> None:
    assert "cannot read it (File name too long)" in refused_here("replay", "a" * 300, *PAIR)


def test_what_is_wrong_does_not_steer_the_terminal(refused_here) -> None:
    field = r"\u001b]0;x\u0007\n"
    hostile = f'{{"engine":{{"max_model_len":16,"num_blocks":4,"{field}":1}},"requests":[]}}'
    line = refused_here("replay", "-", *PAIR, stdin=hostile)
    assert line.isprintable() and r"\x1b]0;x\x07\n" in line


def test_a_result_file_is_tried_and_not_left_behind(tmp_path: Path) -> None:
    hunt_module._check_writable(tmp_path / "new" / "out.json")
    assert list((tmp_path / "new").iterdir()) == []
    old = tmp_path / "old.json"
    old.write_text("{}")
    hunt_module._check_writable(old)
    assert old.read_text() == "{}"
