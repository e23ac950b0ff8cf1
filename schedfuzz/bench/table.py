"""Nouns: bug, table, evidence, component.

The table says of each known bug what a hunt of its pair has to show for the bug to count as found.
Evidence alone is weak (many faults end in the same assertion), so a finding must also have run code
of the bug's component that the later release has changed.
"""

import re
from pathlib import Path
from typing import get_args

import msgspec

from schedfuzz.bench.changes import changed_lines
from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.events import Event
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.corpus.trace import KINDS, Kind, Verdict
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.targets import parse_release

COMPONENT = re.compile(r"[\w.]+:[\w.]+")
NAMED_RULES = {"crash", "hang"}  # kinds whose rule may also be the name of an exception
NEEDS = {
    *Engine.__struct_fields__, *Request.__struct_fields__,
    *(str(event.__struct_config__.tag) for event in get_args(Event)),
}  # fmt: skip
OTHER = "name another with --table FILE"


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One known bug: releases that have it and have not, where it stands, how it shows.

    `component` holds `module:function`, functions inside it included. `evidence` holds `KIND` or
    `KIND:RULE` for violations, `changed:LEVEL:DECISION` for how a divergence begins. `needs` names
    fields of engine or requests, and types of events, without which the bug cannot show.
    """

    id: str
    title: str
    kind: Kind
    before: str
    after: str
    dimensions: tuple[str, ...]
    component: tuple[str, ...]
    evidence: tuple[str, ...]
    needs: tuple[str, ...] = ()

    def can_show(self, scenario: Scenario) -> bool:
        """Return whether a scenario has all that the bug needs."""
        # What is at its default is not written.
        story = msgspec.json.decode(encode(scenario))
        has = set(story["engine"]).union(*story["requests"])
        return set(self.needs) <= has | {event["type"] for event in story["events"]}

    def shown_by(self, verdict: Verdict) -> bool:
        """Return whether a verdict is evidence of this bug."""
        if verdict.verdict == "changed":
            return any(f"changed:{verdict.rule}".startswith(item) for item in self.evidence)
        if verdict.verdict != "fixed":
            return False
        return bool({verdict.kind, f"{verdict.kind}:{verdict.rule}"} & set(self.evidence))


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    bug: tuple[Bug, ...]


def default_table() -> Path:
    """Return where the table stands in a checkout."""
    return Path(__file__).parents[2] / "bench" / "known_bugs.toml"


def load_table(path: Path) -> tuple[Bug, ...]:
    """Return the bugs of a table. Raises InputError in one line for a missing or malformed one."""
    try:
        bugs = msgspec.toml.decode(path.read_bytes(), type=_Table).bug
    except FileNotFoundError:
        raise InputError(f"{path}: no such table (a checkout has one); {OTHER}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror}); {OTHER}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a table of bugs ({error}); mend it") from None
    seen: set[str] = set()
    for bug in bugs:
        _check(path, bug)
        if bug.id in seen:
            raise InputError(f"{path}: bug {bug.id!r} stands there twice; give it another id")
        seen.add(bug.id)
    return bugs


def chosen(bugs: tuple[Bug, ...], only: tuple[str, ...]) -> tuple[Bug, ...]:
    """Return the bugs named by `only` (all without any). Raises InputError for an unknown id."""
    known = [bug.id for bug in bugs]
    for name in only:
        if name not in known:
            raise InputError(f"--only {name!r}: no such bug; the table has: {', '.join(known)}")
    return tuple(bug for bug in bugs if not only or bug.id in only)


def _check(path: Path, bug: Bug) -> None:
    where = f"{path}: bug {bug.id!r}"
    if not bug.id or not bug.component or not bug.evidence:
        raise InputError(f"{where}: id, component and evidence must not be empty")
    for release in (bug.before, bug.after):
        try:
            parse_release(release)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    for item in bug.component:
        if not COMPONENT.fullmatch(item):
            raise InputError(f"{where}: component {item!r} is not MODULE:FUNCTION")
    for item in bug.needs:
        if item not in NEEDS:
            raise InputError(f"{where}: needs {item!r}, no field of a scenario nor type of event")
    for item in bug.evidence:
        if not _is_evidence(item):
            raise InputError(f"{where}: evidence {item!r}: write KIND, KIND:RULE or changed:WHAT")


def _is_evidence(text: str) -> bool:
    kind, colon, rule = text.partition(":")
    if kind == "changed":
        return rule.startswith(("outcome:", "schedule:"))
    known = rule in RULES and RULES[rule][0] == kind
    return kind in KINDS and (not colon or known or (kind in NAMED_RULES and rule.isidentifier()))


def changed_sites(bug: Bug, before: Environment, after: Environment) -> set[str]:
    """Return `module:qualname:line` of each block of the component that `after` has changed.

    The lines are those of `before`. Raises InputError when none has changed: the table is wrong.
    """
    found: set[str] = set()
    for item in bug.component:
        module, _, function = item.partition(":")
        one, two = (module_source(side, module) for side in (before, after))
        found |= {f"{module}:{line}" for line in changed_lines(one, two, function)}
    if not found:
        pair = f"{bug.before} and {bug.after}"
        raise InputError(f"bug {bug.id!r}: its component is the same in {pair}; mend the table")
    return found


def module_source(side: Environment, module: str) -> str:
    """Return the source of a module of a release, "" if it has none of that name."""
    path = side.site_packages / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return ""
