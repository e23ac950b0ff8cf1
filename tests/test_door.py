"""The door: `./dev run` leaves relative paths to the caller, a wrong verb is one line."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_relative_path_is_the_callers(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text('{"engine": 3}')
    answer = subprocess.run(
        [str(ROOT / "dev"), "run", "replay", "case.json", "0.28.0", "0.29.0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 2
    assert answer.stderr.splitlines()[-1].startswith("schedfuzz: case.json: engine = 3")


def test_a_wrong_verb_is_one_line_with_the_cure() -> None:
    answer = subprocess.run(
        [str(ROOT / "dev"), "nosuch"], capture_output=True, text=True, timeout=60
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    [line] = answer.stderr.splitlines()
    assert "'nosuch'" in line and "setup, hunt, run" in line and "`./dev run nosuch`" in line
