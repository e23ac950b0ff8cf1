"""Nouns: command.

Runs the installed `schedfuzz` as a user's shell would, in a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SCHEDFUZZ = str(Path(sys.executable).parent / "schedfuzz")


def schedfuzz(
    *arguments: object, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end and return its output and exit code."""
    return subprocess.run(
        [SCHEDFUZZ, *map(str, arguments)], capture_output=True, text=True, input=stdin,
        env={**os.environ, **(env or {})}, timeout=600, check=False,
    )  # fmt: skip
