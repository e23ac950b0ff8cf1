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


def start(*arguments: object, env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start one command and leave it running."""
    return subprocess.Popen(
        [SCHEDFUZZ, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, **env},
    )  # fmt: skip
