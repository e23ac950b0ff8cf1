"""Nouns: canonical JSON, scenario id, decoding with errors that name field, value and cure.

Same scenario, same bytes: struct order is fixed, defaults are not written, requests and events are
sorted by validation, so the SHA-256 of the bytes is the scenario's identity.
"""

import contextlib
import hashlib
import re
from pathlib import Path

import msgspec

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import SCHEMA_VERSION, Scenario
from schedfuzz.corpus.validate import validate

_decoder = msgspec.json.Decoder(Scenario)
_encoder = msgspec.json.Encoder()


def encode(scenario: Scenario) -> bytes:
    """Return the scenario's canonical JSON (compact, UTF-8)."""
    return _encoder.encode(scenario)


def pretty(scenario: Scenario) -> str:
    """Return the same JSON indented for people, with a final newline."""
    return msgspec.json.format(encode(scenario), indent=2).decode() + "\n"


def scenario_id(scenario: Scenario) -> str:
    """Return the content address: SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(encode(scenario)).hexdigest()


def decode(data: bytes | str, source: str = "scenario") -> Scenario:
    """Parse and validate a scenario.

    Raises InputError naming the field, the value and the cure.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        return _decode(raw, source)
    except RecursionError:
        raise InputError(f"{source}: nested too deeply; expected one object") from None


def _decode(raw: bytes, source: str) -> Scenario:
    try:
        scenario = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        _check_schema(raw, source)
        raise InputError(f"{source}: {_explain(raw, str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not valid JSON ({error}); expected one object") from None
    _refuse_schema(scenario.schema, source)
    return validate(scenario, source)


class _Versioned(msgspec.Struct):
    schema: int = SCHEMA_VERSION


def _check_schema(raw: bytes, source: str) -> None:
    """Blame the schema before the fields that a later one may have brought."""
    with contextlib.suppress(msgspec.DecodeError):
        _refuse_schema(msgspec.json.decode(raw, type=_Versioned).schema, source)


def _refuse_schema(schema: int, source: str) -> None:
    if schema != SCHEMA_VERSION:
        raise InputError(
            f"{source}: schema {schema} is not known; this schedfuzz reads schema "
            f"{SCHEMA_VERSION}: upgrade schedfuzz or export the scenario again"
        )


def load(path: Path) -> Scenario:
    """Read a scenario file. Raises InputError for a missing, unreadable or invalid file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such scenario file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror})") from None
    return decode(data, str(path))


def _explain(raw: bytes, message: str) -> str:
    """Turn msgspec's message into 'field = value: what is wrong; cure'."""
    match = re.search(r"at `\$(?P<path>[^`]*)`", message)
    problem = re.sub(r" - at `[^`]*`", "", message)
    if match is None:
        return f"{problem}; see docs/scenario.md for the fields"
    path = match["path"].lstrip(".")
    try:
        value = _value_at(msgspec.json.decode(raw), path)
    except msgspec.DecodeError:  # a number that only the typed decoder can place
        value = _MISSING
    shown = "" if value is _MISSING else f" = {_short(value)}"
    return f"{path or 'top level'}{shown}: {problem}; see docs/scenario.md for the fields"


_MISSING = object()


def _value_at(node: object, path: str) -> object:
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            node = node[int(index)] if index else node[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return node


def _short(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
