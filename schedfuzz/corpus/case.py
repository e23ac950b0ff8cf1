"""Nouns: case, its file.

A scenario with what is known of it: what it broke where it was found, which runner plays it, and
whether it is known to fail. A folder of such files is a regression corpus. A plain scenario is a
case too, and so is what `schedfuzz show --json` prints.
"""

from pathlib import Path
from typing import Literal

import msgspec

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario

FORMAT = "schedfuzz.case/1"


class Case(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True,
    tag_field="format", tag=FORMAT,
):  # fmt: skip
    """One case; `xfail` says why it is known to break a rule, "" when it must not.

    `found` are the targets before and after, `verdict`, `kind`, `rule` and `title` what they said.
    """

    scenario: msgspec.Raw
    title: str = ""
    verdict: str = ""
    kind: str = ""
    rule: str = ""
    fingerprint: str = ""
    found: tuple[str, ...] = ()
    runner: Literal["simulated", "real"] = "simulated"
    xfail: str = ""

    def story(self, source: str) -> Scenario:
        """Return its scenario. Raises InputError naming the source, the field and the cure."""
        return codec.decode(bytes(self.scenario), source)


def encode(case: Case) -> str:
    """Return the case's file, indented for people."""
    return msgspec.json.format(msgspec.json.encode(case), indent=2).decode() + "\n"


class _Shown(msgspec.Struct):
    """What `show --json` prints of a finding, as far as it matters here."""

    reproducer: dict[str, msgspec.Raw]


class _Told(msgspec.Struct):
    format: str = ""


def unwrapped(data: bytes) -> bytes:
    """Return the scenario within a case or within what `show --json` printed, or the data."""
    try:
        if msgspec.json.decode(data, type=_Told).format == FORMAT:
            return bytes(msgspec.json.decode(data, type=Case).scenario)
        return bytes(msgspec.json.decode(data, type=_Shown).reproducer["scenario"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, RecursionError):
        return data


def load(path: Path) -> Case:
    """Read a case or a scenario. Raises InputError naming the file, what is wrong and the cure."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror})") from None
    try:
        told = msgspec.json.decode(data, type=_Told).format
    except (msgspec.DecodeError, RecursionError):
        told = ""
    if not told:
        return Case(msgspec.Raw(unwrapped(data)))
    try:
        return msgspec.json.decode(data, type=Case)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: is no case of format {FORMAT} ({error})") from None
