"""Nouns: coverage command, figures.

What a corpus reaches of a release's scheduler, in lines and branches that a reader of vLLM knows.
The figures are coverage.py's, over every file of the scheduler, imported or not.
"""

import time
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from schedfuzz.cli.corpus import LINE_SECONDS, files_in, read_scenario
from schedfuzz.cli.hunt import OTHER_PLACE
from schedfuzz.cli.options import json_option, print_json
from schedfuzz.cli.screen import print_table
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.build import ensure
from schedfuzz.workers.covering import Figures, Report, measure
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.target.covered import Played
from schedfuzz.workers.targets import parse_release


@click.command()
@click.argument("release")
@click.option(
    "--corpus", "corpus_dir", metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Replay this directory instead of the seeds and the corpora of RELEASE's pairs.",
)  # fmt: skip
@click.option(
    "--html", "html_dir", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
    help="Where coverage.py writes its HTML report (default: coverage-RELEASE, here).",
)  # fmt: skip
@json_option
def coverage(release: str, corpus_dir: Path | None, html_dir: Path | None, as_json: bool) -> None:
    """Replay a corpus on RELEASE under coverage.py: statements and branches of its scheduler.

    Limited to vllm/v1/core. The percentage counts statements and branches alike.
    """
    release = parse_release(release)
    home = Home.locate()
    folders = corpora(home, release) if corpus_dir is None else [corpus_dir]
    scenarios = collect(folders)
    if not scenarios:
        raise InputError(f"{folders[0]}: no scenarios to replay; name another --corpus")
    html = make_directory(html_dir or Path(f"coverage-{release}"), OTHER_PLACE)
    env = ensure(release, home, say)
    told = Told(len(scenarios))
    title = f"vLLM {release}: scheduler coverage of {len(scenarios)} scenarios"
    log = home.logs / f"coverage-{release}.log"
    say(f"starting {release} under coverage.py, {len(scenarios)} scenarios; importing it is slow")
    report = measure(env, scenarios, html, title, log, told.hear)
    if as_json:
        print_json(as_object(release, told.outcomes, html, report))
        return
    print_table(figures_table(report))
    counts = ", ".join(f"{count} {name}" for name, count in sorted(told.outcomes.items()))
    click.echo(f"\n{release}\t{len(scenarios)} scenarios: {counts}")
    click.echo(f"report\t{html / 'index.html'}")


def corpora(home: Home, release: str) -> list[Path]:
    """Return the seeds' directory and the corpus of every pair that the release is part of."""
    kept = [path for path in home.corpora() if release in path.name.split("..")]
    return [seed_corpus(), *kept]


def collect(folders: list[Path]) -> list[Scenario]:
    """Return the scenarios in some directories, each once; other files are passed over."""
    found: dict[str, Scenario] = {}
    for folder in folders:
        for scenario in filter(None, map(read_scenario, files_in(folder))):
            found.setdefault(codec.scenario_id(scenario), scenario)
    return list(found.values())


class Told:
    """Counts the outcomes of played scenarios and prints a line every few seconds."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.outcomes: dict[str, int] = {}
        self._said = 0.0  # the first line is due at once

    def hear(self, played: Played) -> None:
        """Count what was played; say it when it is time, and every loss."""
        for name, count in played.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + count
        if played.reason:
            say(plain(played.reason))
        done = sum(self.outcomes.values())
        if time.monotonic() - self._said >= LINE_SECONDS or done == self.wanted:
            self._said = time.monotonic()
            say(f"ran {done} of {self.wanted}")


def figures_table(report: Report) -> Table:
    """Return a row a file and the total: statements and branches (run/all), percent of both."""
    table = Table(box=None, pad_edge=False)
    table.add_column("file", overflow="fold")
    for name in ("statements", "branches", "percent"):
        table.add_column(name, justify="right")
    rows = [(name, file.summary) for name, file in sorted(report.files.items())]
    for name, figures in [*rows, ("total", report.totals)]:
        table.add_row(
            name,
            f"{figures.covered_lines}/{figures.num_statements}",
            f"{figures.covered_branches}/{figures.num_branches}",
            f"{figures.percent_covered:.1f}",
        )
    return table


def as_object(release: str, outcomes: dict[str, int], html: Path, report: Report) -> dict[str, Any]:
    """Return what `--json` shows."""
    return {
        "release": release,
        "scenarios": sum(outcomes.values()),
        "outcomes": dict(sorted(outcomes.items())),
        "report": str(html / "index.html"),
        "files": [
            {"file": name, **_figures(file.summary)} for name, file in sorted(report.files.items())
        ],
        "total": _figures(report.totals),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "statements": figures.num_statements,
        "statements_run": figures.covered_lines,
        "branches": figures.num_branches,
        "branches_run": figures.covered_branches,
        "percent": round(figures.percent_covered, 2),
    }
