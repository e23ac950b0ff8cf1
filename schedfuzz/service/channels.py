"""Nouns: channel, webhook, command, secret.

Where notices go, as the environment of the process says. What may be secret (the webhook's address
often is) is never part of what these settings print or complain about.
"""

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from schedfuzz.corpus.errors import InputError

URL = "SCHEDFUZZ_WEBHOOK_URL"
SECRET = "SCHEDFUZZ_WEBHOOK_SECRET"
SECRET_FILE = "SCHEDFUZZ_WEBHOOK_SECRET_FILE"
COMMAND = "SCHEDFUZZ_NOTIFY_COMMAND"
PER_HOUR = "SCHEDFUZZ_NOTIFY_PER_HOUR"
# What a command of the user's has no need to see.
PRIVATE = frozenset((URL, SECRET, SECRET_FILE))
_MOST_PER_HOUR = 100_000
_DEFAULT_PER_HOUR = 20


@dataclass(frozen=True)
class Channels:
    """Where notices go; `per_hour` bounds what each channel is sent in an hour.

    `secret` signs what the webhook gets; `command` is a program and its arguments.
    """

    webhook_url: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    command: tuple[str, ...] = ()
    per_hour: int = _DEFAULT_PER_HOUR

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Channels":
        """Return the channels that the variables of the environment (os.environ) name.

        An empty variable counts as unset. Raises InputError for a wrong value: one line that names
        it, unless it is secret, and its cure.
        """
        given = os.environ if environment is None else environment
        values = {name: value for name, value in given.items() if value}
        return cls(
            _url(values[URL]) if URL in values else None,
            _secret(values.get(SECRET), values.get(SECRET_FILE)),
            _command(values[COMMAND]) if COMMAND in values else (),
            _per_hour(values.get(PER_HOUR, str(_DEFAULT_PER_HOUR))),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the channels that are set, as notices store them."""
        given = {"webhook": self.webhook_url, "command": self.command}
        return tuple(name for name, value in given.items() if value)


def _url(text: str) -> str:
    cure = "write it like https://example.org/hook"
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(f"{URL}: has blanks, control or non-ASCII characters; {cure}")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"{URL}: its host or port is malformed; {cure}") from None
    if parts.scheme not in ("http", "https"):
        raise InputError(f"{URL}: {parts.scheme!r} is neither http nor https; {cure}")
    if not host:
        raise InputError(f"{URL}: {parts.scheme}: and no host; {cure}")
    if "@" in parts.netloc:
        raise InputError(
            f"{URL}: has a user or a password before {host!r}; take them out, and sign with "
            f"{SECRET_FILE} instead"
        )
    return parts._replace(fragment="").geturl()


def _secret(value: str | None, file: str | None) -> str | None:
    if value and file:
        raise InputError(f"{SECRET} and {SECRET_FILE} are both set; unset one of them")
    if file is None:
        return value
    try:
        held = Path(file).read_bytes().decode(errors="surrogateescape").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a file name"
        raise InputError(
            f"{SECRET_FILE} {file!r}: {why}; name a file that this user may read"
        ) from None
    if not held:
        raise InputError(f"{SECRET_FILE} {file!r}: is empty; write the secret into it")
    return held


def _command(text: str) -> tuple[str, ...]:
    cure = """write it like `notify --to me` or ["notify", "--to", "me"]"""
    try:
        words = json.loads(text) if text.lstrip().startswith("[") else shlex.split(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{COMMAND} {text!r}: {_one_line(error)}; {cure}") from None
    if not words or not words[0] or not all(isinstance(word, str) for word in words):
        raise InputError(f"{COMMAND} {text!r}: is no list of words; {cure}")
    if any("\0" in word for word in words):
        raise InputError(f"{COMMAND} {text!r}: a word has a NUL in it; {cure}")
    if shutil.which(words[0]) is None:
        raise InputError(
            f"{COMMAND} {words[0]!r}: no such program; install it, or name it with its path"
        )
    return tuple(words)


def _per_hour(text: str) -> int:
    digits = text.strip()
    if digits.isascii() and digits.isdecimal() and len(digits) <= 9:
        number = int(digits)
        if 0 < number <= _MOST_PER_HOUR:
            return number
    raise InputError(
        f"{PER_HOUR} {text!r}: not a number from 1 to {_MOST_PER_HOUR}; set one, or unset it for "
        f"{_DEFAULT_PER_HOUR}"
    )


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
