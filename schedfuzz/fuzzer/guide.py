"""Nouns: guide, remote counters.

Atheris drives, but what it must see runs in other processes. libFuzzer takes coverage from arrays
of 8-bit counters that modules register; we register one of our own, through the same entry points
that compiled code uses, and copy each run's features into it.
"""

import contextlib
import ctypes
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from schedfuzz.corpus.errors import InfraError
from schedfuzz.fuzzer.features import MAP_SIZE, SITES

LIBFUZZER_CORE = "atheris.core_with_libfuzzer"
MAX_SCENARIO_BYTES = 1 << 16
RELOAD_SECONDS = 10
NEVER = 10**8  # seconds; the target processes have their own limits

Execute = Callable[[bytes], tuple[bytes, bytes, Iterable[int]] | None]
Mutate = Callable[[bytes, int], bytes]
Cross = Callable[[bytes, bytes, int], bytes]


class Counters:
    """The array that libFuzzer reads after each execution."""

    def __init__(self) -> None:
        self.array = (ctypes.c_uint8 * MAP_SIZE)()
        self._view = memoryview(self.array).cast("B")
        self._table = (ctypes.c_size_t * (2 * MAP_SIZE))()
        self._registered = False

    def register(self) -> None:
        """Register with libFuzzer; only inside the first execution.

        Loading its core library any earlier silently disables custom mutators.
        """
        if self._registered:
            return
        self._registered = True
        spec = importlib.util.find_spec(LIBFUZZER_CORE)
        if spec is None or spec.origin is None:
            raise InfraError("this build of Atheris has no libFuzzer core: reinstall atheris")
        library = ctypes.CDLL(spec.origin)
        start = ctypes.addressof(self.array)
        for index in range(MAP_SIZE):
            self._table[2 * index] = start + index  # any distinct number may stand for a pc
        table = ctypes.addressof(self._table)
        # By item: Python would mangle these names inside a class.
        for name, first, length in (
            ("__sanitizer_cov_8bit_counters_init", start, MAP_SIZE),
            ("__sanitizer_cov_pcs_init", table, ctypes.sizeof(self._table)),
        ):
            library[name](ctypes.c_void_p(first), ctypes.c_void_p(first + length))

    def light(self, before: bytes, after: bytes, hashed: Iterable[int]) -> None:
        """Show one run: the sites of both sides (a byte each) and the hashed features."""
        lit = bytearray(MAP_SIZE)
        lit[0] = 1  # libFuzzer drops an input that lights nothing
        lit[1 : 1 + min(len(before), SITES)] = before[:SITES]
        lit[1 + SITES : 1 + SITES + min(len(after), SITES)] = after[:SITES]
        for feature in hashed:
            lit[feature] = 1
        self._view[:] = lit


class Stop(Exception):
    """Raised by `execute` to end the guide; no input is blamed."""


def available() -> bool:
    """Return whether Atheris can be used on this machine."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(
    execute: Execute, mutate: Mutate, cross: Cross, corpus: list[Path], seed: int,
    artifacts: Path | None = None, reload: bool = False,
) -> None:  # fmt: skip
    """Let Atheris choose inputs until `execute` raises Stop; raises RuntimeError the second time.

    `corpus[0]` receives new entries, and with `reload` it is read again now and then; `artifacts`
    receives the input at hand when this process itself crashes (None: nowhere, never the working
    directory). Any other exception of a callback ends the guide and is raised here. Afterwards only
    `os._exit` ends this process with a code of the caller's: libFuzzer's exit handler makes 130 of
    any other.
    """
    import atheris

    if LIBFUZZER_CORE in sys.modules:
        raise RuntimeError("one process can be guided only once: hunt in another one")
    counters = Counters()
    failure: list[BaseException] = []

    def one_input(data: bytes) -> None:
        counters.register()
        try:
            if failure:
                raise failure[0]
            counters.light(*(execute(data) or (b"", b"", ())))
        except Stop:
            raise KeyboardInterrupt from None
        except BaseException as error:
            failure[:] = [error]
            raise KeyboardInterrupt from None

    def guarded(call: Callable[..., bytes], fallback: bytes, *arguments: Any) -> bytes:
        # An exception inside a mutator hangs libFuzzer's exit: keep it for the next execution.
        try:
            return call(*arguments)
        except BaseException as error:
            failure[:] = [error]
            return fallback

    def mutator(data: bytes, max_size: int, mutator_seed: int) -> bytes:
        return guarded(mutate, data, data, mutator_seed)

    def crossover(one: bytes, two: bytes, max_size: int, mutator_seed: int) -> bytes:
        return guarded(cross, one, one, two, mutator_seed)

    # A prefix must name a directory; the null device is a place for one exact file.
    artifact = (
        f"exact_artifact_path={os.devnull}"
        if artifacts is None
        else f"artifact_prefix={artifacts}/"
    )
    arguments = [
        sys.argv[0], f"-seed={seed + 1}", f"-max_len={MAX_SCENARIO_BYTES}", "-len_control=0",
        "-entropic=0", "-rss_limit_mb=0", f"-timeout={NEVER}", "-verbosity=0", "-detect_leaks=0",
        f"-reload={RELOAD_SECONDS if reload else 0}", f"-{artifact}",
        *map(os.path.abspath, corpus),  # a relative one may begin like an option
    ]  # fmt: skip
    atheris.Setup(arguments, one_input, custom_mutator=mutator, custom_crossover=crossover)
    try:
        with contextlib.suppress(SystemExit):
            atheris.Fuzz()
    finally:
        # Its alarm would end this process for being slow long after the last input.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    if failure:
        raise failure[0]
