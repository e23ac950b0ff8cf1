"""The guide drives Atheris: remote counters guide it, and every way to end it is clean.

Each case is a script in a process and a directory of its own, since a process can be guided once.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schedfuzz.fuzzer.guide import available

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no Atheris")

HEAD = """
import json, os, sys
from pathlib import Path
from random import Random
from schedfuzz.corpus.codec import decode, encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.fuzzer.guide import Stop, fuzz
from msgspec.structs import replace

corpus = Path("corpus")
corpus.mkdir(exist_ok=True)
runs = 0

def say(**facts):
    print(json.dumps(facts), flush=True)
"""
# Eight values, each of which only counts when all before it are right: 4 bits each.
SECRET = """
SECRET = (3, 14, 1, 5, 9, 2, 6, 11)
BASE = Scenario(Engine(64, 40), tuple(Request(n, Prompt(5), 16) for n in range(8)))
fed = sys.argv[1] == "fed"

def execute(data):
    global runs
    runs += 1
    if runs > 12000:
        raise Stop
    try:
        scenario = decode(data)
    except InputError:
        return None
    right = 0
    while right < 8 and scenario.requests[right].max_tokens == SECRET[right]:
        right += 1
    if right == 8:
        say(found=runs)
        raise Stop
    return (b"\\1" * (right + 1), b"", ()) if fed else None

def mutate(data, seed):
    rng = Random(seed)
    try:
        scenario = decode(data)
    except InputError:
        scenario = BASE
    requests = list(scenario.requests)
    at = rng.randrange(8)
    requests[at] = replace(requests[at], max_tokens=rng.randint(1, 16))
    return encode(replace(scenario, requests=tuple(requests)))

fuzz(execute, mutate, lambda one, two, seed: mutate(one, seed), [corpus], 1)
say(runs=runs, corpus=len(list(corpus.iterdir())))
"""


def guided(tmp_path: Path, body: str, *arguments: str) -> tuple[int, list[dict], str]:
    """Run a script in an empty directory; return its exit code, facts and standard error."""
    answer = subprocess.run(
        [sys.executable, "-c", HEAD + body + "os._exit(0)", *arguments], cwd=tmp_path,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    facts = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    left = [path.name for path in tmp_path.iterdir() if path.name != "corpus"]
    assert left == [], left  # no crash-*, timeout-*, slow-unit-* of libFuzzer
    return answer.returncode, facts, answer.stderr


def test_a_secret_behind_remote_conditions_is_found_only_when_fed(tmp_path: Path) -> None:
    fed, unfed = tmp_path / "fed", tmp_path / "unfed"
    fed.mkdir()
    unfed.mkdir()
    code, facts, error = guided(fed, SECRET, "fed")
    assert code == 0, error
    assert "found" in facts[0] and facts[1]["runs"] <= 12000
    assert facts[1]["corpus"] >= 8  # each right value was worth keeping
    code, facts, error = guided(unfed, SECRET, "unfed")
    assert code == 0, error
    assert [fact["runs"] for fact in facts] == [12001]
    assert facts[0]["corpus"] <= 2


ENDS = """
def execute(data):
    global runs
    runs += 1
    if runs == 5 and sys.argv[1] == "execute":
        raise RuntimeError("execute failed")
    if runs == 5 and sys.argv[1] == "exit":
        raise SystemExit(7)
    if runs == 50:
        raise Stop
    return b"\\1" * runs, b"\\1", (20000 + runs,)

def mutate(data, seed):
    if runs >= 5 and sys.argv[1] == "mutate":
        raise RuntimeError("mutate failed")
    return data[:20] + bytes([seed % 256])

def cross(one, two, seed):
    if runs >= 5 and sys.argv[1] == "cross":
        raise RuntimeError("cross failed")
    return one[:20] + two[:20]

try:
    fuzz(execute, mutate, cross, [corpus], 3)
    say(ended="normally", runs=runs)
except BaseException as error:
    say(ended=f"{type(error).__name__}: {error}", runs=runs)
"""


def test_stop_ends_the_guide_and_python_goes_on(tmp_path: Path) -> None:
    code, facts, error = guided(tmp_path, ENDS, "stop")
    assert (code, facts) == (0, [{"ended": "normally", "runs": 50}]), error


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("execute", "RuntimeError: execute failed"),
        ("exit", "SystemExit: 7"),
        ("mutate", "RuntimeError: mutate failed"),
        ("cross", "RuntimeError: cross failed"),
    ],
)
def test_an_exception_of_a_callback_ends_the_guide_with_it(
    tmp_path: Path, where: str, what: str
) -> None:
    code, facts, error = guided(tmp_path, ENDS, where)
    assert code == 0, error
    assert [fact["ended"] for fact in facts] == [what]
    assert facts[0]["runs"] < 50  # at once, not at the stop


TWICE = """
def execute(data):
    raise Stop

for _ in range(2):
    try:
        fuzz(execute, lambda data, seed: data, lambda one, two, seed: one, [corpus], 1)
        say(ended="normally")
    except Exception as error:
        say(ended=f"{type(error).__name__}: {error}")
"""


def test_a_second_guide_in_one_process_is_refused(tmp_path: Path) -> None:
    code, facts, error = guided(tmp_path, TWICE)
    assert code == 0, error
    assert facts[0] == {"ended": "normally"}
    assert facts[1]["ended"].startswith("RuntimeError: one process can be guided only once")


SLOW = """
import time
def execute(data):
    global runs
    runs += 1
    if runs > 2:
        raise Stop
    time.sleep(1.2)
    return b"\\1", b"", ()

fuzz(execute, lambda data, seed: data + b"x", lambda one, two, seed: one, [corpus], 1)
time.sleep(2.5)
say(ended="normally")
"""


def test_no_alarm_of_libfuzzer_outlives_the_guide(tmp_path: Path) -> None:
    code, facts, error = guided(tmp_path, SLOW)
    assert (code, facts) == (0, [{"ended": "normally"}]), error
