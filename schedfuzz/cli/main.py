"""Nouns: command, exit code.

The door for users. Exit codes: 0 clean, 1 our own fault or the machine's, 2 bad arguments or
input, 3 findings.
"""

import contextlib
import errno
import os
import sys
import traceback
from typing import Any

import click

from schedfuzz import __version__
from schedfuzz.cli import decide
from schedfuzz.cli.bench import bench
from schedfuzz.cli.campaign import campaign
from schedfuzz.cli.ci import ci
from schedfuzz.cli.cluster import cluster
from schedfuzz.cli.corpus import corpus
from schedfuzz.cli.coverage import coverage
from schedfuzz.cli.diff import diff
from schedfuzz.cli.dimensions import dimensions
from schedfuzz.cli.export import export
from schedfuzz.cli.fidelity import fidelity
from schedfuzz.cli.findings import findings
from schedfuzz.cli.hunt import hunt
from schedfuzz.cli.minimize import minimize
from schedfuzz.cli.mute_rules import rule
from schedfuzz.cli.notices import notices
from schedfuzz.cli.prune import prune
from schedfuzz.cli.quarantine import forgive, quarantine
from schedfuzz.cli.replay import replay
from schedfuzz.cli.serve import serve
from schedfuzz.cli.service_status import status
from schedfuzz.cli.show import show
from schedfuzz.cli.since import bisect, matrix, verify
from schedfuzz.cli.targets import targets
from schedfuzz.cli.triage import triage
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.workers.signals import EXIT_INTERRUPTED, leave_on_signals

EXIT_FAULT = 1
EXIT_INPUT = 2


class Verbs(click.Group):
    """The verbs; an interrupt leaves them without the blank line that click would print."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(EXIT_INTERRUPTED) from None


@click.group(
    cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__)
def cli() -> None:
    """Differential fuzzing of vLLM's scheduler.

    Scenarios run on two real vLLM releases, before and after; every divergence, assertion and
    starved request is stored with a minimized reproducer.
    """


for command in (
    hunt, replay, minimize, findings, show, diff, triage, *decide.VERBS, rule, matrix, bisect,
    verify, ci, export,    targets, corpus, campaign, cluster, status,
    notices, prune, serve, bench,
):  # fmt: skip
    cli.add_command(command)
for command in coverage, quarantine, forgive:
    corpus.add_command(command)
targets.add_command(dimensions)
bench.add_command(fidelity)


def main() -> None:
    """Run the command line and exit with its code."""
    _open_standard_streams()
    leave_on_signals()
    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if "atheris" in sys.modules:
        os._exit(code)  # libFuzzer's exit handler would call a normal end a crash
    sys.exit(code)


def _open_standard_streams() -> None:
    """Give a closed standard stream to the null device, before a database gets its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def run(arguments: list[str]) -> int:
    """Run one command; every error becomes one line on standard error and an exit code."""
    try:
        code = cli.main(arguments, prog_name="schedfuzz", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", EXIT_INTERRUPTED)
    except SystemExit as stop:
        if stop.code == EXIT_FAULT:
            return EXIT_FAULT
        return _say("interrupted", EXIT_INTERRUPTED)
    except click.ClickException as error:
        return _usage(error)
    except InputError as error:
        return _say(str(error), EXIT_INPUT)
    except InfraError as error:
        return _say(str(error), EXIT_FAULT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAULT
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = error.filename or "the disk"
            return _say(f"{where}: no space left; free some and run again", EXIT_INPUT)
        return _fault()
    except Exception:
        return _fault()


def _usage(error: click.ClickException) -> int:
    """Say what is wrong with the arguments, and where the right ones stand, in one line."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        error.show()
        return EXIT_INPUT
    path = "schedfuzz"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
    said = " ".join(error.format_message().split()).rstrip(".")
    click.echo(f"{path}: {plain(said)}; see `{path} --help`", err=True)
    return EXIT_INPUT


def _say(line: str, code: int) -> int:
    click.echo(f"schedfuzz: {plain(line)}", err=True)
    return code


def _fault() -> int:
    traceback.print_exc()
    return _say("this is schedfuzz's own fault; please report the lines above", EXIT_FAULT)
