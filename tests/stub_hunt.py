"""Nouns: stub hunt.

`schedfuzz hunt` with a pair that needs no vLLM, in a process of its own: everything else, Atheris
too, is real. The first argument names the fault to plant, or `none`; the rest is the command's own.
Each sighting adds a byte to the file that STUB_SIGHTINGS names, each run on the real runner its
scenario to the one that STUB_REAL names.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from fabricated import CONTRACT, FIRST, FakePair, trace
from running import read_to

SITES = 64


class StubPair(FakePair):
    """Finishes every scenario; more than six requests break a rule on the first side."""

    restarts = 0
    seconds = 0.0

    def __init__(self, before: Any, *_: object, **__: object) -> None:
        super().__init__()
        self.real = before.runner == "real"

    def on_incident(self, call: object) -> None:
        pass

    def run(self, scenario: Any) -> tuple[Any, ...]:
        from schedfuzz.corpus import codec

        time.sleep(self.seconds)
        if self.real:
            with open(os.environ["STUB_REAL"], "ab") as file:
                file.write(codec.encode(scenario) + b"\n")
        lit = bytearray(SITES)
        for byte in hashlib.sha256(codec.encode(scenario)).digest()[:2]:
            lit[byte % SITES] = 1
        broken = (CONTRACT,) if len(scenario.requests) > 6 else ()
        sides = trace(FIRST, violations=broken), trace(FIRST)
        return tuple(msgspec.structs.replace(side, coverage=bytes(lit)) for side in sides)


def command(fault: str, *arguments: object) -> list[str]:
    """Return the command line of a stub hunt."""
    return [sys.executable, __file__, fault, "hunt", "0.28.0", "0.29.0", *map(str, arguments)]


def stub_hunt(
    env: Mapping[str, str], *arguments: object, fault: str = "none", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a stub hunt to its end."""
    return subprocess.run(
        command(fault, *arguments), capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **env}, **options,
    )  # fmt: skip


def started(env: Mapping[str, str], *arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """Start a slow stub hunt and return it once it hunts."""
    process = subprocess.Popen(
        command("slow", *arguments), env={**os.environ, **env}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip
    read_to(process, "hunting")
    return process


def _plant(fault: str) -> None:
    from schedfuzz.cli import hunt as verb
    from schedfuzz.db.connect import open_store
    from schedfuzz.fuzzer import hunt

    def boom(*_: object) -> Any:
        raise RuntimeError("planted")

    if fault == "slow":
        StubPair.seconds = 0.01
    elif fault == "impatient":
        verb.open_store = partial(open_store, busy_timeout=1.0)  # type: ignore[attr-defined]
    elif fault != "none":
        getattr(hunt, fault)
        setattr(hunt, fault, boom)


def _main() -> None:
    from schedfuzz.cli import main, session

    record = session.DatabaseRecorder.sighting

    def sighting(*arguments: Any) -> tuple[int, bool]:
        with open(os.environ["STUB_SIGHTINGS"], "a") as file:
            file.write(".")
        return record(*arguments)

    session.DatabaseRecorder.sighting = sighting  # type: ignore[method-assign]
    session.Pair = StubPair  # type: ignore[assignment, misc]
    _plant(sys.argv.pop(1))
    main.main()


if __name__ == "__main__":
    _main()
