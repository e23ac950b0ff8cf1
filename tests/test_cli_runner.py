"""Which runner plays: the option, the names, both at once. No vLLM here."""

import json
import signal
from pathlib import Path
from random import Random

import pytest
from fabricated import SMALL
from found import list_findings
from msgspec.structs import replace
from running import until
from stub_hunt import started, stub_hunt

from schedfuzz.cli.main import run
from schedfuzz.cli.source import parse_on
from schedfuzz.corpus import codec
from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.names import typed_name
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer import guide
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.pair import limit_of
from schedfuzz.workers.targets import Target, parse_target

PAIR = ("0.28.0", "0.29.0")
REAL = ("0.28.0:real", "0.29.0:real")
ATHERIS = pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty home, for this process too."""
    env = {
        "SCHEDFUZZ_HOME": str(tmp_path / "home"), "SCHEDFUZZ_DB": f"sqlite:///{tmp_path / 'db'}",
        "STUB_SIGHTINGS": str(tmp_path / "sightings"), "STUB_REAL": str(tmp_path / "real"),
    }  # fmt: skip
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env


# -- the option and the spelling -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["0.28.0", "0.28.0:real"])
def test_the_option_puts_every_spelling_on_its_runner(text: str) -> None:
    assert parse_on(text, None).runner == ("real" if ":" in text else "simulated")
    assert parse_on(text, "real").name == "0.28.0:real"


@pytest.mark.parametrize(
    ("arguments", "runner"),
    [
        (("replay", "FILE", "0.28.0:real", "0.29.0"), "simulated"),
        (("replay", "FILE", "0.28.0", "0.29.0:real"), "simulated"),
        (("minimize", "FILE", *REAL), "simulated"),
        (("hunt", *REAL), "simulated"),
        (("hunt", *REAL), "both"),
        (("hunt", "0.28.0:real"), "both"),
    ],
)
def test_a_spelling_that_contradicts_the_option(env, tmp_path, capfd, arguments, runner) -> None:
    file = tmp_path / "small.json"
    file.write_text(codec.pretty(SMALL))
    words = [str(file) if word == "FILE" else word for word in arguments]
    assert run([*words, "--runner", runner]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    target = next(word for word in words if word.endswith(":real"))
    assert f"target '{target}' is on the real runner, but --runner says {runner}" in err
    assert "leave out :real or the option" in err


@pytest.mark.parametrize("verb", ["replay", "minimize"])
def test_both_is_for_hunts_only(env, capfd, verb) -> None:
    assert run([verb, "x.json", *PAIR, "--runner", "both"]) == 2
    assert "'both'" in capfd.readouterr().err


# -- stored names --------------------------------------------------------------------------------


def test_stored_names_come_back_as_what_to_type(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mend.py").write_text("def mend(name, tree):\n    return tree\n\nclass Mine:\n    pass\n")
    for text in (
        "0.28.0:real", "0.28.0:real+mend.py:mend", "0.28.0:real@mend:Mine", "0.28.0@mend:Mine",
    ):  # fmt: skip
        target = parse_target(text)
        typed = typed_name(target.name).replace("PATH/TO/", "")
        assert (typed, parse_target(typed).name) == (text, target.name)


def test_the_two_runners_share_no_finding_and_no_corpus(env, capfd) -> None:
    store = open_store(env["SCHEDFUZZ_DB"])
    verdict = Verdict("fixed", "contract", "seats", "f" * 16, "seats", component="scheduler")
    for names in (PAIR, REAL):
        hunt = writes.start_hunt(store, *names, 1, {})
        writes.record_verdict(store, hunt, *names, verdict, SMALL, 3, 1, 0.5)
    assert [row.before for row in list_findings(store)] == ["0.28.0", "0.28.0:real"]
    assert len(queries.unfinished_minimizations(store, *REAL)) == 1
    assert run(["minimize", "1", "--runner", "real"]) == 2
    refused = capfd.readouterr().err
    assert "target 0.28.0:real: finding 1 is on 0.28.0 and 0.29.0; another runner" in refused
    assert run(["minimize", "2", *PAIR]) == 2
    assert "finding 2 is on 0.28.0:real and 0.29.0:real" in capfd.readouterr().err
    assert run(["show", "2"]) == 0
    assert "schedfuzz replay 2 0.28.0:real 0.29.0:real\n" in capfd.readouterr().out
    directories = []
    for names in (PAIR, REAL):
        assert run(["corpus", "path", *names]) == 0
        directories.append(capfd.readouterr().out)
    assert len(set(directories)) == 2


# -- what the runners can play -------------------------------------------------------------------


@pytest.mark.parametrize("after", ["simulated", "real"])
def test_every_scenario_is_fitted_to_what_the_real_runner_plays(after) -> None:
    target = Target("0.29.0")
    limit = limit_of(target.on("real"), target.on(after))
    assert limit is not None
    supported = Supported(limit)
    seeds = [codec.load(file) for file in sorted(seed_corpus().glob("*.json"))]
    scenarios = [*seeds, *(generate(Random(number)) for number in range(400))]
    beyond = [scenario for scenario in scenarios if limit(scenario) is not None]
    assert len(beyond) > 50
    for scenario in scenarios:
        fitted = supported.fit(scenario)
        assert limit(fitted) is None
        assert (fitted is scenario) == (scenario not in beyond)
    if after == "simulated":  # the two look drafts up in different tokens
        assert all(supported.fit(s).engine.spec_method != "ngram" for s in scenarios)


@pytest.mark.parametrize("verb", ["replay", "minimize"])
@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, "it plays engine.block_size = 32 and its whole multiples only"),
        ({"block_size": 32, "max_loras": 1}, "it cannot play engine.max_loras"),
    ],
)
def test_what_the_real_runner_cannot_play_is_refused_before_it_starts(
    env, tmp_path, capfd, monkeypatch, verb, fields, part
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)  # whatever machine this is: no GPU
    file = tmp_path / "small.json"
    file.write_text(codec.pretty(replace(SMALL, engine=replace(SMALL.engine, **fields))))
    assert run([verb, str(file), "0.29.0", "0.29.0:real"]) == 2
    assert capfd.readouterr() == (
        "",
        f"schedfuzz: target 0.29.0:real: {part}; change the scenario or name another target\n",
    )
    assert not (tmp_path / "home").exists()  # no environment was built, no target started


def test_two_simulated_runners_play_everything() -> None:
    assert limit_of(Target("0.28.0"), Target("0.29.0")) is None


# -- hunts on both -------------------------------------------------------------------------------


def played(env: dict[str, str]) -> list[str]:
    """Return what the real pair ran, and forget it."""
    file = Path(env["STUB_REAL"])
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


@ATHERIS
def test_a_hunt_on_both_replays_what_is_new_and_a_seed_repeats_it(env, tmp_path) -> None:
    results = []
    for name in ("one", "two"):
        place = tmp_path / name
        result = stub_hunt(
            env, "--runner", "both", "--runs", 120, "--seed", 3, "--corpus", place / "corpus",
            "--json", place / "x.json", "--db", f"sqlite:///{place / 'db'}",
        )  # fmt: skip
        assert result.returncode == 3, result.stderr
        results.append((played(env), json.loads((place / "x.json").read_text())))
    (ran, figures), (again, _) = results
    assert ran == again
    assert 6 <= figures["real_executions"] <= len(ran)
    assert (figures["executions"], figures["real_waiting"]) == (120, 0)
    rows = figures["findings"]
    assert {row["before"] for row in rows} == {"0.28.0", "0.28.0:real"}
    assert len({row["fingerprint"] for row in rows}) * 2 == len(rows)
    limit = limit_of(Target("0.28.0", runner="real"), Target("0.29.0", runner="real"))
    assert limit is not None
    playable = [line for line in ran if limit(codec.decode(line)) is None]
    assert len(playable) >= figures["real_executions"]  # a reduction may try what is not
    assert f"schedfuzz hunt {' '.join(PAIR)} --runner both --seed 4" in result.stderr
    assert "real runner; " in result.stderr


@ATHERIS
@pytest.mark.parametrize("runner", [(), ("--runner", "simulated")])
def test_a_simulated_hunt_never_starts_the_real_runner(env, tmp_path, runner) -> None:
    result = stub_hunt(env, *runner, "--runs", 40, "--json", tmp_path / "x.json")
    assert result.returncode in (0, 3), result.stderr
    assert played(env) == []
    assert "real_executions" not in json.loads((tmp_path / "x.json").read_text())


@ATHERIS
def test_a_hunt_on_the_real_runner_is_kept_under_its_names(env, tmp_path) -> None:
    result = stub_hunt(
        env, "--runner", "real", "--runs", 120, "--seed", 3, "--json", tmp_path / "x.json"
    )
    assert result.returncode == 3, result.stderr
    figures = json.loads((tmp_path / "x.json").read_text())
    assert {(row["before"], row["after"]) for row in figures["findings"]} == {REAL}
    assert len(played(env)) >= 120
    assert any((tmp_path / "home" / "corpus" / "..".join(REAL)).iterdir())


@ATHERIS
def test_an_interrupted_hunt_on_both_keeps_both_pairs(env, tmp_path) -> None:
    hunt = started(env, "--runner", "both", "--time", 10**6, "--json", tmp_path / "x.json")
    until(Path(env["STUB_REAL"]).exists)
    hunt.send_signal(signal.SIGINT)
    err = hunt.communicate(timeout=120)[1]
    assert hunt.returncode in (0, 3), err
    figures = json.loads((tmp_path / "x.json").read_text())
    store = open_store(env["SCHEDFUZZ_DB"])
    hunts = {row.before: row for row in queries.list_hunts(store)}
    assert {row.state for row in hunts.values()} == {"interrupted"}
    assert hunts["0.28.0"].executions == figures["executions"]
    assert hunts["0.28.0:real"].executions == figures["real_executions"] > 0
