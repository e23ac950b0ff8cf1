"""Nouns: log line, context, mask.

One JSON object a line, on a stream. The key insight: a log must never end what it reports on, so
whatever cannot be written is written as its repr, and a stream that is gone is not missed. Loggers
look their stream up at each line, so one that was made before `set_up` obeys it too.
"""

import json
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

from schedfuzz.corpus.errors import InputError

LEVELS = ("debug", "info", "warning", "error", "critical")
MASK = "***"
# Not "tokens": requests have those.
_PRIVATE = re.compile(r"secret|password|passwd|token(?!s)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
_DEPTH = 8
_PLAIN_BITS = 64  # what every reader of JSON takes as an integer


class _Output:
    """Where the lines go; a logger of structlog's, of which it calls only `msg`'s kin."""

    def __init__(self) -> None:
        self.stream: TextIO | None = None
        self.level = logging.INFO
        self._lock = threading.Lock()

    def msg(self, line: str) -> None:
        """Write one line in one piece; what cannot be written is lost."""
        try:
            with self._lock:
                stream = self.stream or sys.stderr
                stream.write(line + "\n")
                stream.flush()
        except (OSError, ValueError, AttributeError):
            return  # closed, full, or none at all

    debug = info = warning = error = critical = msg


_output = _Output()
if hasattr(os, "register_at_fork"):
    # Another thread may hold the lock at a fork, and nobody would let it go in the child.
    os.register_at_fork(after_in_child=lambda: setattr(_output, "_lock", threading.Lock()))


def set_up(stream: TextIO | None = None, level: str = "info") -> None:
    """Write lines of that level and above to the stream (None: standard error) from now on.

    Raises InputError for an unknown level.
    """
    if level not in LEVELS:
        raise InputError(f"log level {level!r}: expected one of {', '.join(LEVELS)}")
    _output.stream = stream
    _output.level = logging.getLevelNamesMapping()[level.upper()]


def get(**context: object) -> FilteringBoundLogger:
    """Return a logger whose every line has the context: campaign, job, node, ...

    A line also has event, level, time (UTC, ISO 8601), pid, and what `bound` says.
    """
    made = structlog.wrap_logger(
        _output,
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _drop_below_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            _add_pid,
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return cast(FilteringBoundLogger, made.bind(**context))


def bound(**context: object) -> AbstractContextManager[None]:
    """Add the context to every line of this thread (or task) within the `with` block."""
    return cast(AbstractContextManager[None], structlog.contextvars.bound_contextvars(**context))


def _drop_below_level(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if logging.getLevelNamesMapping()[line["level"].upper()] < _output.level:
        raise structlog.DropEvent
    return line


def _add_pid(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line["pid"] = os.getpid()
    return line


def _render(_: Any, __: str, line: MutableMapping[str, Any]) -> str:
    # ASCII only: then no encoding of the stream can refuse it.
    return json.dumps(_plain(line), ensure_ascii=True, allow_nan=False)


def _plain(value: object, depth: int = 0) -> Any:
    """Return the value as JSON can hold it, with what is private masked."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _masked(str(value))
    if type(value) is int and value.bit_length() < _PLAIN_BITS:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if depth < _DEPTH and type(value) in (dict, list, tuple):
        return _plain_parts(value, depth + 1)
    return _shown(value)


def _plain_parts(value: Any, depth: int) -> Any:
    if not isinstance(value, Mapping):
        return [_plain(item, depth) for item in value]
    names = {key: key if isinstance(key, str) else _shown(key) for key in value}
    return {
        _masked(name): MASK if _PRIVATE.search(name) else _plain(value[key], depth)
        for key, name in names.items()
    }


def _shown(value: object) -> str:
    try:
        return _masked(repr(value))
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _masked(text: str) -> str:
    return _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
