"""Nouns: replay command.

One scenario, once, on both targets: what the pair says on top, then both sides step by step.
"""

from typing import Any

import click
import msgspec

from schedfuzz.cli.account import print_account
from schedfuzz.cli.options import db_option, json_option, print_json, runner_option
from schedfuzz.cli.source import (
    load_scenario,
    parse_on,
    refuse_beyond,
    refuse_unplayable,
    start_pair,
)
from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.trace import Step, Trace, Verdict
from schedfuzz.fuzzer.judge import judge

EXIT_FINDINGS = 3


@click.command()
@click.argument("scenario", metavar="SCENARIO")
@click.argument("before")
@click.argument("after")
@runner_option
@click.option("--strict", is_flag=True, help="A divergence alone also exits with 3.")
@json_option
@db_option
def replay(
    scenario: str, before: str, after: str, runner: str | None, strict: bool, as_json: bool,
    db_url: str | None,
) -> int:  # fmt: skip
    """Run SCENARIO once on BEFORE and AFTER and show both sides step by step.

    SCENARIO is a file, - for standard input, or the id of a finding. Exits with 3 when the pair
    says fixed, regressed or both.
    """
    targets = parse_on(before, runner), parse_on(after, runner)
    story = load_scenario(scenario, db_url)
    refuse_beyond(targets, story)
    with start_pair(*targets) as pair:
        traces = pair.run(story)
    refuse_unplayable(targets, traces)
    verdict = judge(*traces)
    names = targets[0].name, targets[1].name
    if as_json:
        print_json(as_object(verdict, *traces))
    else:
        print_account(verdict, names, traces)
    if verdict.verdict == "infra":
        raise InfraError(f"the scenario could not be run: {plain(verdict.detail)}")
    quiet = ("clean",) if strict else ("clean", "changed")
    return 0 if verdict.verdict in quiet else EXIT_FINDINGS


def as_object(verdict: Verdict, before: Trace, after: Trace) -> dict[str, Any]:
    """Return what `--json` shows of a run: the verdict and both sides."""
    names = ("verdict", "kind", "rule", "component", "fingerprint", "title", "detail")
    shown = {name: getattr(verdict, name) for name in names}
    return shown | {"before": _side(before), "after": _side(after)}


def _side(trace: Trace) -> dict[str, Any]:
    return {
        "outcome": trace.outcome,
        "steps": [_step(step) for step in trace.steps],
        "outputs": [msgspec.structs.asdict(output) for output in trace.outputs],
        "violations": [msgspec.structs.asdict(item) for item in trace.violations],
        "reason": trace.reason,
    }


def _step(step: Step) -> dict[str, Any]:
    shares = [msgspec.structs.asdict(share) for share in step.scheduled]
    return msgspec.structs.asdict(step) | {"scheduled": shares}
