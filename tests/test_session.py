"""The session of docs/triage.md, typed again: from a fresh hunt to a patch in a clone."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from clones import make_clone
from command import SCHEDFUZZ

from schedfuzz.workers.home import Home

TEXT = (Path(__file__).parents[1] / "docs" / "triage.md").read_text()
COMMANDS = re.findall(r"^\$ (.+)$", TEXT, re.MULTILINE)
RULE = "past-max-model-len"


def test_the_session_is_short() -> None:
    assert 1 < len(COMMANDS) <= 8
    assert COMMANDS[0].startswith("schedfuzz hunt 0.28.0 0.29.0")


@pytest.mark.vllm
def test_the_session_goes_from_a_hunt_to_an_applied_patch(
    shared_home: Home, tmp_path: Path, environment_028: object, environment_029: object
) -> None:
    make_clone(tmp_path / "vllm", commits=8, moved_at=2, mended_at=5)
    variables = {
        **os.environ, "SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_USER": "ann",
        "SCHEDFUZZ_DB": f"sqlite:///{tmp_path}/triage.db",
        "PATH": f"{Path(SCHEDFUZZ).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip

    def type_in(line: str) -> str:
        done = subprocess.run(
            shlex.split(line), cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        # A hunt ends with 3 when it found something.
        assert done.returncode in (0, 3), f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    said = [type_in(COMMANDS[0])]
    found = json.loads(type_in("schedfuzz findings --verdict fixed --json"))
    # Which number it gets is a matter of the machine's speed.
    number = next(str(row["id"]) for row in found if row["rule"] == RULE)
    written = re.findall(r"schedfuzz show (\d+)", TEXT)[0]
    for line in COMMANDS[1:]:
        said.append(type_in(re.sub(rf"\b{written}\b", number, line)))
    text = "\n".join(said)
    for part in (
        "0.28.0 breaks the rule and 0.29.0 keeps it", "went between 0.28.0 and 0.29.0",
        "the first good commit: ", "reported",
    ):  # fmt: skip
        assert part in text, part
    tests = list((tmp_path / "vllm" / "tests" / "v1" / "core").iterdir())
    assert len(tests) == 1 and RULE.replace("-", "_") in tests[0].name
