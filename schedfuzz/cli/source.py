"""Nouns: source, stored pair.

Where a verb takes its scenario from (a file, standard input or a finding) and its two targets: of
a finding's stored names a release's is enough to start it, a transform's holds no path.
"""

import sys
from pathlib import Path
from typing import Any

from schedfuzz.cli.options import open_db
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.case import unwrapped
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.names import holds_no_path, typed_name
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import queries
from schedfuzz.db.models import Finding
from schedfuzz.workers.environment import build_kind
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.target.real.device import check_interpreter
from schedfuzz.workers.targets import REAL_SUFFIX, Target, parse_target


def parse_on(text: str, runner: str | None) -> Target:
    """Return the target that `text` spells, on the runner that `--runner` names (None: no option).

    Raises InputError when the spelling names another runner, and as `parse_target`.
    """
    target = parse_target(text)
    if runner == "real":
        return target.on("real")
    if runner is not None and target.runner == "real":
        raise InputError(
            f"target {text!r} is on the real runner, but --runner says {runner}; "
            f"leave out {REAL_SUFFIX} or the option"
        )
    return target


def finding_id(text: str) -> int | None:
    """Return the finding id that `text` is, or None for a file (`./12` is one too)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def load_scenario(source: str, db_url: str | None) -> Scenario:
    """Return the scenario of a file, of `-` (standard input) or of a finding's best reproducer.

    Raises InputError.
    """
    number = finding_id(source)
    if number is not None:
        return reproducer(queries.get_finding(open_db(db_url), number))
    if source == "-":
        return codec.decode(unwrapped(sys.stdin.buffer.read()), "standard input")
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError:
        return codec.load(path)  # which says what is wrong with it
    return codec.decode(unwrapped(data), source)


def reproducer(finding: Finding) -> Scenario:
    """Return the finding's best reproducer. Raises InputError if it cannot be read any more."""
    return codec.decode(finding.reproducer.data, f"finding {finding.id}")


def stored_pair(
    finding: Finding, verb: str, before: str | None, after: str | None, runner: str | None = None
) -> tuple[Target, Target]:
    """Return the targets of a finding, from its names or as they were spelled for `verb`.

    Raises InputError for a transform that was not spelled, and for targets of another pair.
    """
    if before is None or after is None:
        if holds_no_path(finding.before, finding.after):
            names = f"{typed_name(finding.before)} {typed_name(finding.after)}"
            raise InputError(
                f"finding {finding.id}: the stored name of a transform or a clone holds no path; "
                f"write `schedfuzz {verb} {finding.id} {'--pair ' * (verb == 'export')}{names}`"
            )
        before, after = typed_name(finding.before), typed_name(finding.after)
    targets = parse_on(before, runner), parse_on(after, runner)
    for wanted, target in zip((finding.before, finding.after), targets, strict=True):
        if target.name != wanted:
            raise InputError(
                f"target {target.name}: finding {finding.id} is on {finding.before} and "
                f"{finding.after}; another runner or an edited transform is another target"
            )
    return targets


def start_pair(
    before: Target, after: Target, coverage: bool = False, **settings: Any
) -> Pair:  # fmt: skip
    """Return a pair that reports on standard error; its environments are built when missing.

    `settings` are those of a target process.
    """

    def incident(what: str, detail: str, scenario: Scenario | None) -> None:
        say(f"{what}: {detail}")

    return Pair(before, after, Home.locate(), say, incident, coverage=coverage, **settings)


def refuse_beyond(targets: tuple[Target, Target], scenario: Scenario) -> None:
    """Raise InputError for what the real runner, where a target is on it, is known not to play."""
    for target in targets:
        if target.runner == "real":
            check_interpreter()  # what it can play depends on it
            field = limits.exceeded(scenario, build_kind())
            if field is not None:
                raise _unplayable(target, field)


def refuse_unplayable(targets: tuple[Target, Target], traces: tuple[Trace, Trace]) -> None:
    """Raise InputError, with the field's name, when one of the targets cannot play the scenario."""
    for target, trace in zip(targets, traces, strict=True):
        if trace.outcome == "unsupported":
            raise _unplayable(target, trace.reason)


def _unplayable(target: Target, reason: str) -> InputError:
    field, _, only = reason.partition(" ")
    lacks = f"cannot play {field}"
    if only:
        multiples = " and its whole multiples" if field in limits.MULTIPLES else ""
        lacks = f"plays {field} = {only}{multiples} only"
    return InputError(
        f"target {target.name}: it {lacks}; change the scenario or name another target"
    )
