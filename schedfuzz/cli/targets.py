"""Nouns: the `targets` verbs (add, list, remove, python, doctor).

Results go to stdout and progress to stderr, so that `$(schedfuzz targets python 0.28.0)` is a
usable interpreter path.
"""

import json

import click
from rich.console import Console

from schedfuzz.corpus.errors import InputError
from schedfuzz.workers.build import doctor, ensure, remove
from schedfuzz.workers.environment import environment, list_environments
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import parse_release


def say(line: str) -> None:
    """Print one progress line to stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(line, style="dim", markup=False)


def borrowed(base: str) -> str:
    """Return what to add to the state of an environment that borrows from `base` ("" for none)."""
    return f", dependencies of {base}" if base else ""


@click.group()
def targets() -> None:
    """Build, list, check and remove the vLLM releases that scenarios run on."""


@targets.command()
@click.argument("releases", nargs=-1, required=True, metavar="RELEASE...")
def add(releases: tuple[str, ...]) -> None:
    """Build the environment of each RELEASE; a ready one is kept as it is."""
    wanted = [parse_release(release) for release in releases]
    home = Home.locate()
    for release in wanted:
        env = ensure(release, home, say)
        click.echo(f"{env.release}\tready\t{env.dir}")


@targets.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON array instead of lines.")
def list_targets(as_json: bool) -> None:
    """List the environments, ready or broken."""
    rows = [
        {
            "release": env.release,
            "build": env.build,
            "ready": not problem,
            "problem": problem,
            "base": env.base.release if env.base else "",
            "dir": str(env.dir),
        }
        for env in list_environments(Home.locate())
        for problem in [env.problem()]
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        state = (
            f"broken: {row['problem']}" if row["problem"] else f"ready{borrowed(str(row['base']))}"
        )
        click.echo(f"{row['release']}\t{row['build']}\t{state}\t{row['dir']}")
    if not rows:
        say("no targets yet; `schedfuzz targets add 0.28.0` builds one")


@targets.command("remove")
@click.argument("release")
def remove_target(release: str) -> None:
    """Delete the environment of RELEASE (`add` builds it again)."""
    remove(release, Home.locate(), say)
    click.echo(f"{release}\tremoved")


@targets.command()
@click.argument("release")
def python(release: str) -> None:
    """Print the path of the interpreter that imports RELEASE."""
    env = environment(parse_release(release), Home.locate())
    problem = env.problem()
    if problem:
        raise InputError(f"target {release}: {problem}; run `schedfuzz targets add {release}`")
    click.echo(env.python)


@targets.command("doctor")
def doctor_targets() -> None:
    """Check marker, packages and import of every environment; exit with 1 if one is ill."""
    ill = False
    for env, problem in doctor(Home.locate()):
        ill = ill or bool(problem)
        cure = f"run `schedfuzz targets remove {env.release}`, then `add {env.release}`"
        well = f"ok{borrowed(env.base.release if env.base else '')}"
        click.echo(f"{env.release}\t{env.build}\t" + (f"{problem}; {cure}" if problem else well))
    if ill:
        raise SystemExit(1)
