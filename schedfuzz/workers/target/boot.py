"""Entry point of a target process, run as a script by the target's own interpreter.

Its first argument are the settings as JSON, its second the module here that takes them (`main`).

Only the `schedfuzz` package may be found outside the environment: its parent directory is on the
path for one import, so that nothing else installed beside schedfuzz can shadow the target's own.
"""

import importlib
import sys
from pathlib import Path

_root = str(Path(__file__).resolve().parents[3])
sys.path.append(_root)
import schedfuzz  # noqa: E402, F401

sys.path.remove(_root)
# The script's own directory must not shadow anything either.
sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]

_name = sys.argv[2] if len(sys.argv) > 2 else "main"
importlib.import_module(f"schedfuzz.workers.target.{_name}").main()
