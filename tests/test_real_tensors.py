"""The checkable model's arithmetic, in a target's environment: torch is not at home here."""

import ast
import json
import os
import subprocess
from pathlib import Path

import pytest

from schedfuzz.workers.environment import Environment

pytestmark = pytest.mark.vllm
SCRIPT = Path(__file__).parent / "real_tensors.py"
CHECKS = [node.name for node in ast.parse(SCRIPT.read_text()).body
          if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]  # fmt: skip


@pytest.fixture(scope="module")
def told(environment_029: Environment) -> dict[str, str]:
    """What each check said."""
    env = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [str(environment_029.python), str(SCRIPT)], env=env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", CHECKS)
def test_the_checkable_models_arithmetic(told: dict[str, str], name: str) -> None:
    assert told[name] == ""
