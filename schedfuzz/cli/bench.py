"""Nouns: bench commands.

Measure the fuzzer itself: the known bugs that it finds, and the mutants of a release that it tells
from the release. Both keep their results in the JSON file as they go and continue it when they are
started again.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from schedfuzz.bench import summary as figures
from schedfuzz.bench.bugs import Budget, BugsBench, ledger_plan
from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.mutant_trial import Limits
from schedfuzz.bench.mutants import MODULES, MutantsBench, file_name, sample, within_reach
from schedfuzz.bench.mutation import Mutation, transform
from schedfuzz.bench.plot import step_plot
from schedfuzz.bench.reference import scenarios
from schedfuzz.bench.table import Bug, chosen, default_table, load_table
from schedfuzz.cli.bench_tables import print_bugs, print_mutants
from schedfuzz.cli.options import Seconds
from schedfuzz.cli.targets import say
from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.errors import InputError
from schedfuzz.fuzzer import guide
from schedfuzz.workers.build import ensure
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.signals import EXIT_INTERRUPTED, stop_on_signals
from schedfuzz.workers.targets import parse_release

A_PATH = click.Path(path_type=Path)


json_file_option = click.option(
    "--json", "json_file", type=A_PATH, metavar="FILE",
    help="Keep the results there; a file with results of the same bench is continued.",
)  # fmt: skip


@click.group()
def bench() -> None:
    """Measure the fuzzer: known bugs found, mutants killed, how true the simulated runner is."""


@bench.command()
@click.option("--table", type=A_PATH, metavar="FILE", help="Another table of bugs.")
@click.option("--only", multiple=True, metavar="ID", help="Only this bug (may be repeated).")
@click.option("--time", "seconds", type=Seconds(), default="10m", metavar="TIME",
              help="Hunt a pair with one seed for this long (default 10m).")  # fmt: skip
@click.option("--runs", type=click.IntRange(1), help="Or for this many executions.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, help="Hunts per pair (3).")
@click.option("--plot", type=A_PATH, metavar="FILE", help="Draw bugs found over time (SVG).")
@json_file_option
def bugs(
    table: Path | None, only: tuple[str, ...], seconds: float, runs: int | None, seeds: int,
    plot: Path | None, json_file: Path | None,
) -> int:  # fmt: skip
    """Hunt the pairs of known bugs from an empty corpus and say which bugs were found.

    One hunt watches for all bugs of its pair and ends early when it has found them.
    """
    if not guide.available():
        raise InputError("bench bugs needs Atheris, which this machine has not; x86_64 Linux has")
    wanted = chosen(whole := load_table(table or default_table()), only)
    home, budget = Home.locate(), Budget(seconds, runs)
    ledger = _ledger("bugs", ledger_plan(whole, budget), json_file)
    try:
        with stop_on_signals() as stop:
            BugsBench(wanted, seeds, budget, ledger, home, say, lambda: stop.made).run()
    finally:
        _report_bugs(wanted, ledger, seconds, plot)
    return EXIT_INTERRUPTED if stop.made else 0


def _report_bugs(
    wanted: Sequence[Bug], ledger: Ledger, seconds: float, plot: Path | None
) -> None:  # fmt: skip
    summary = figures.bugs_summary(wanted, ledger)
    ledger.write(summary)
    print_bugs(summary)
    if plot is not None:
        hunted = {row["bug"] for row in summary["rows"]}
        curves = figures.curves(result for result in ledger if result["bug"] in hunted)
        title = f"known bugs found over time, of {summary['bugs']}"
        write_file(plot, step_plot(title, curves, seconds, summary["bugs"]))


@bench.command()
@click.argument("release")
@click.option("--count", type=click.IntRange(1), default=100, help="How many mutants (100).")
@click.option("--seed", type=click.IntRange(0), default=1, help="Which mutants and scenarios (1).")
@click.option("--time", "seconds", type=Seconds(), default="60", metavar="TIME",
              help="Try each mutant for this long at most (default 60).")  # fmt: skip
@click.option("--runs", type=click.IntRange(1), help="Or for this many executions.")
@click.option("--scenarios", "pool", type=click.IntRange(1), default=1000,
              help="Try each mutant on those of so many that run its code (1000).")  # fmt: skip
@click.option("--corpus", type=A_PATH, metavar="DIR", help="Take scenarios from DIR first.")
@click.option("--modules", type=click.Choice(list(MODULES)), multiple=True,
              help="Mutate only this module (may be repeated).")  # fmt: skip
@click.option("--out", type=A_PATH, metavar="DIR", help="Write each survivor as a target's file.")
@json_file_option
def mutants(
    release: str, count: int, seed: int, seconds: float, runs: int | None, pool: int,
    corpus: Path | None, modules: tuple[str, ...], out: Path | None, json_file: Path | None,
) -> int:  # fmt: skip
    """Run mutants of RELEASE's scheduler and KV-cache manager against RELEASE itself.

    A mutant is killed when it breaks a rule or its schedule differs. Scenarios come from a
    generator and the mutator, without coverage feedback.
    """
    parse_release(release)
    directories = [] if corpus is None else [_directory(corpus)]
    if out is not None:
        make_directory(out, "name another place")
    modules = modules or tuple(MODULES)
    plan = {"release": release, "seed": seed, "time": seconds, "runs": runs, "scenarios": pool,
            "corpus": corpus and str(corpus), "modules": list(modules)}  # fmt: skip
    ledger = _ledger("mutants", plan, json_file)
    home = Home.locate()
    environment = ensure(release, home, say)
    kept, left_out = within_reach(sample(environment, modules, seed))
    selected = kept[:count]
    scratch = tempfile.TemporaryDirectory(prefix="schedfuzz-bench-")
    with scratch as folder, stop_on_signals() as stop:
        bench = MutantsBench(
            release, environment, Path(folder), home.logs / f"target-{release}-mutated.log",
            ledger, Limits(seconds, runs), say, lambda: stop.made,
        )  # fmt: skip
        bench.run(selected, scenarios([*directories, seed_corpus()], seed, pool))
    _report_mutants(release, selected, ledger, left_out, out)
    return EXIT_INTERRUPTED if stop.made else 0


def _report_mutants(
    release: str, selected: Sequence[Mutation], ledger: Ledger, left_out: dict[str, int],
    out: Path | None,
) -> None:  # fmt: skip
    results = {m.name: ledger.file.results[m.name] for m in selected if m.name in ledger}
    summary = figures.mutants_summary(list(results.values())) | {"left_out": left_out}
    ledger.write(summary)
    print_mutants(summary)
    for mutation in selected if out is not None else ():
        if results.get(mutation.name, {}).get("status") == "survived":
            file = Path(str(out)) / file_name(mutation)
            write_file(file, transform(mutation, release))
            click.echo(f"survivor {file}")


def _ledger(bench: str, plan: dict[str, Any], path: Path | None) -> Ledger:
    if path is not None:
        make_directory(path.absolute().parent, "name another place")
    return Ledger(bench, plan, path, write_file)


def _directory(path: Path) -> Path:
    if not path.is_dir():
        raise InputError(f"--corpus {path}: no such directory; name one that holds scenarios")
    return path
