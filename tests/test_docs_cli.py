"""docs/cli.md names every verb and every option that the command line has, and no other verb."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from schedfuzz.cli.main import cli

TEXT = (Path(__file__).parents[1] / "docs" / "cli.md").read_text()
SECTIONS = dict(
    zip(
        re.findall(r"^## schedfuzz (.+)$", TEXT, re.MULTILINE),
        re.split(r"^## schedfuzz .+$", TEXT, flags=re.MULTILINE)[1:],
        strict=True,
    )
)


def verbs(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


VERBS = dict(verbs(cli))


def test_every_verb_has_its_section_and_every_section_its_verb() -> None:
    assert set(SECTIONS) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_section_has_an_example_and_every_option(verb: str) -> None:
    section = SECTIONS[verb]
    assert re.search(rf"^    .*schedfuzz {verb}\b", section, re.MULTILINE)
    options = {
        option
        for parameter in VERBS[verb].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--")
    }
    assert options <= set(re.findall(r"--[a-z-]+", section)), verb
    assert VERBS[verb].help
