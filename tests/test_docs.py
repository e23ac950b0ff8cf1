"""The documents say what the code says: fields, bounds, defaults, rules, commands, files."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from schedfuzz.cli.main import cli
from schedfuzz.corpus import codec
from schedfuzz.corpus import validate as bounds
from schedfuzz.corpus.events import (
    Abort,
    Pause,
    ResetPrefixCache,
    Resume,
    ThrottlePrefills,
)
from schedfuzz.corpus.parts import (
    Connector,
    External,
    Group,
    Image,
    Repetition,
    Sampling,
    Structured,
    Turn,
)
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import SCHEMA_VERSION, Engine, Prompt, Request, Scenario

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix()
)

LANGUAGE = (
    Scenario, Engine, Request, Prompt, Group, Connector, External, Image, Structured, Sampling,
    Turn, Repetition, Abort, ResetPrefixCache, Pause, Resume, ThrottlePrefills,
)  # fmt: skip
BOUNDS = {
    "Scenario": {
        "requests": f"1 … {bounds.MAX_REQUESTS}",
        "events": f"0 … {bounds.MAX_EVENTS}",
        "schema": f"{SCHEMA_VERSION} … {SCHEMA_VERSION}",
    },
    "Engine": bounds.ENGINE_BOUNDS | {"block_size": ", ".join(map(str, bounds.BLOCK_SIZES))},
    "Request": bounds.REQUEST_BOUNDS
    | {
        "max_tokens": "1 … `max_model_len`",
        "accept": f"1 … {bounds.MAX_ACCEPT} entries, each 0 … {bounds.MAX_ACCEPTED}",
        "proposals": f"0 … {bounds.MAX_PARTS} entries, each 0 … {bounds.MAX_ACCEPTED}",
    },
    "Prompt": {
        "length": "1 … `max_model_len` - 1",
        "family": f"0 … {bounds.MAX_FAMILY}",
        "shared": "0 … `length`",
    },
    **bounds.PART_BOUNDS,
}


def bounds_said(struct: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    """Return how docs/scenario.md must put a field's bounds."""
    known: dict[str, Any] = BOUNDS.get(struct.__name__, bounds.EVENT_BOUNDS)
    bound = known.get(field.name, "")
    if isinstance(bound, tuple):
        bound = f"{bound[0]} … {bound[1]}"
        if field.default == ():
            bound = f"0 … {bounds.MAX_PARTS} entries, each {bound}"
    elif field.default == () and not bound:
        bound = f"0 … {bounds.MAX_PARTS} entries"
    return str(bound)


def rows(text: str) -> list[list[str]]:
    """Return the cells of every table row, without headings."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [re.split(r"\s*\|\s*", line)[1:-1] for line in lines]


def section(text: str, heading: str) -> str:
    return re.split(rf"^## {heading}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    return f"`{msgspec.json.encode(field.default).decode()}`"


@pytest.mark.parametrize("struct", LANGUAGE, ids=lambda s: s.__name__)
def test_every_field_of_the_language_has_its_row(struct: type[msgspec.Struct]) -> None:
    text = section((ROOT / "docs" / "scenario.md").read_text(), struct.__name__)
    assert [row[:3] for row in rows(text)] == [
        [f"`{field.name}`", default(field), bounds_said(struct, field)]
        for field in msgspec.structs.fields(struct)
    ]
    assert all(row[3] for row in rows(text))
    tag = struct.__struct_config__.tag
    assert tag is None or f'`"type": "{tag}"`' in text


def test_the_example_of_the_language_is_a_scenario() -> None:
    text = (ROOT / "docs" / "scenario.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert codec.decode(example).events


def test_every_rule_has_its_row_and_its_sentence() -> None:
    said = rows((ROOT / "docs" / "rules.md").read_text())
    assert said == [[f"`{name}`", kind, text] for name, (kind, text) in RULES.items()]


# -- commands ------------------------------------------------------------------------------------


def code(text: str) -> Iterator[str]:
    """Yield every line of code: fenced, indented, or between backticks."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"^    (\S.*)$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", text)


def fault(words: list[str]) -> str:
    """Return what is wrong with the words that follow `schedfuzz` on a command line, or ""."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        if name not in command.commands:
            return "" if name in ("VERB", "…") else f"no verb {name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word not in known]
    return f"{command.name} has no {unknown[0]}" if unknown else ""


@each_document
def test_every_command_line_is_one(document: Path) -> None:
    verbs = re.findall(r"^  \./dev (\w+)", runpy.run_path(str(ROOT / "dev"))["__doc__"], re.M)
    for line in code(document.read_text()):
        for verb, arguments in re.findall(r"\./dev (\w+)([^)&;]*)", line):
            assert verb in verbs, line
            if verb == "hunt":
                assert not fault(["hunt", *arguments.split()]), line
        for arguments in re.findall(r"(?:^|/|\(|\s)schedfuzz ([^)&;#]+)", line):
            words = arguments.split()
            assert not fault(words), f"{line}: {fault(arguments.split())}"


def test_readme_has_the_two_commands_for_a_fresh_machine() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    first, second = (block.strip() for block in blocks[:2])
    assert first.endswith("&& ./dev hunt") and second.endswith("&& ./dev test")
    assert "\n" not in first + second


# -- files ---------------------------------------------------------------------------------------


def mentioned(text: str) -> Iterator[str]:
    """Yield the paths of this repository that stand between backticks."""
    tops = "|".join(("schedfuzz", "tests", "bench", "docs", r"\.ci"))
    yield from re.findall(rf"`((?:{tops})/[\w./-]*)`", text)


@each_document
def test_every_file_that_is_mentioned_exists(document: Path) -> None:
    text = document.read_text()
    missing = [name for name in mentioned(text) if not (ROOT / name).exists()]
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing += [link for link in links if not (document.parent / link).exists()]
    assert not missing


def test_messages_point_to_documents_that_exist() -> None:
    named = {
        name
        for path in (ROOT / "schedfuzz").rglob("*.py")
        for name in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())
    }
    assert "docs/scenario.md" in named
    assert not [name for name in named if not (ROOT / name).is_file()]


@pytest.mark.parametrize("note", sorted((ROOT / "docs" / "notes").iterdir()), ids=lambda p: p.stem)
def test_the_map_or_the_rules_lead_to_every_note(note: Path) -> None:
    guides = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "rules.md"]
    assert any(f"](notes/{note.name})" in guide.read_text() for guide in guides)
