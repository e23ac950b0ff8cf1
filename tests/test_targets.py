"""Nouns: target spelling, home errors, the `targets` verbs on an empty home."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from schedfuzz.cli.targets import targets
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.names import typed_name
from schedfuzz.workers.environment import environment
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import Target, parse_target

SOURCE = "def drop(module_name, tree):\n    return tree\n"


@pytest.fixture
def transform(tmp_path: Path) -> Path:
    path = tmp_path / "rewrite.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("text", ["0.28.0", "0.27.1", "0.32.0rc1", "0.28.0.post1", "1.0.0"])
def test_a_release_names_itself(text: str) -> None:
    assert parse_target(text) == Target(text)
    assert parse_target(text).name == parse_target(text).spelling == text


@pytest.mark.parametrize(
    "text", ["", "0.28", "v0.28.0", "0.28.0 ", "latest", "../0.28.0", "0.28.0-x"]
)
def test_a_misspelled_release_is_named_with_its_cure(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(text)
    assert repr(text) in str(caught.value)
    assert "0.28.0+PATH/TO/file.py:function" in str(caught.value)


def test_a_transform_is_absolute_and_spelled_back(
    transform: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(transform.parent)
    target = parse_target("0.28.0+rewrite.py:drop")
    assert target.transform == (transform, "drop")
    assert parse_target(target.spelling) == target
    assert target.name.startswith("0.28.0+rewrite.py:drop@")
    assert str(transform.parent) not in target.name


def test_an_edited_transform_is_another_target(transform: Path) -> None:
    text = f"0.28.0+{transform}:drop"
    before = parse_target(text).name
    assert parse_target(text).name == before
    transform.write_text(SOURCE + "# edited\n")
    assert parse_target(text).name != before


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "is not FILE.py:FUNCTION"),
        ("rewrite.py", "is not FILE.py:FUNCTION"),
        ("rewrite.py:", "is not FILE.py:FUNCTION"),
        ("rewrite.py:not a name", "is not FILE.py:FUNCTION"),
        ("missing.py:drop", "no file"),
        (".:drop", "cannot read"),
        ("rewrite.py:other", "it has: drop"),
        ("broken.py:drop", "is not Python"),
    ],
)
def test_a_bad_transform_says_why(
    rest: str, said: str, transform: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(transform.parent)
    Path("broken.py").write_text("def drop(:\n")
    with pytest.raises(InputError, match=said) as caught:
        parse_target(f"0.28.0+{rest}")
    assert "\n" not in str(caught.value)


CLASSES = "class Mine:\n    pass\n\nclass Other(Mine):\n    pass\n"


@pytest.fixture
def scheduler_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two classes, below the current directory."""
    path = tmp_path / "pkg" / "sched.py"
    path.parent.mkdir()
    path.write_text(CLASSES)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_scheduler_class_is_found_below_the_current_directory(scheduler_module: Path) -> None:
    target = parse_target("0.32.0@pkg.sched:Mine")
    assert target.scheduler == (scheduler_module.parents[1], "pkg.sched:Mine")
    assert parse_target(target.spelling) == target
    assert target.name.startswith("0.32.0@pkg.sched:Mine@")
    assert typed_name(target.name) == target.spelling
    scheduler_module.write_text(CLASSES + "# edited\n")
    assert parse_target(target.spelling).name != target.name


def test_a_scheduler_class_is_found_on_the_python_path(
    scheduler_module: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    root = scheduler_module.parents[1]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setenv("PYTHONPATH", str(root))
    assert parse_target("0.32.0@pkg.sched:Mine").scheduler == (root, "pkg.sched:Mine")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "is not module:Class"),
        ("pkg.sched", "is not module:Class"),
        ("pkg.sched:not a name", "is not module:Class"),
        ("pkg/sched.py:Mine", "is not module:Class"),
        ("pkg.missing:Mine", "no module 'pkg.missing' in the current directory"),
        ("pkg.sched:Yours", "defines no class 'Yours'; it has: Mine, Other"),
    ],
)
def test_a_bad_scheduler_class_says_why(rest: str, said: str, scheduler_module: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(f"0.32.0@{rest}")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_home_is_where_the_variable_says(home: Home, tmp_path: Path) -> None:
    assert home.root == tmp_path / "home"
    assert home.corpus("0.28.0", "0.29.0") == home.root / "corpus" / "0.28.0..0.29.0"
    assert home.corpus("0.28.0", "0.29.0").is_dir()
    assert home.database_url == f"sqlite:///{home.root}/schedfuzz.db"


def test_an_empty_variable_means_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDFUZZ_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Home.locate().root == tmp_path / "schedfuzz"


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_way_of_the_home(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a file is in the way.*SCHEDFUZZ_HOME"):
        Home.locate(tmp_path / "file" / below)


def test_a_file_in_the_way_inside_the_home(home: Home) -> None:
    (home.root / "targets").write_text("")
    with pytest.raises(InputError, match="home/targets: a file is in the way"):
        environment("0.28.0", home)


def test_a_home_on_a_kernel_file_system_is_refused() -> None:
    with pytest.raises(InputError, match="/proc/schedfuzz: cannot create it"):
        Home.locate(Path("/proc/schedfuzz"))


def test_verbs_on_an_empty_home(home: Home) -> None:
    run = CliRunner().invoke
    assert json.loads(run(targets, ["list", "--json"]).stdout) == []
    assert run(targets, ["doctor"]).exit_code == 0
    for verb in ("python", "remove"):
        refused = run(targets, [verb, "0.28.0"]).exception
        assert isinstance(refused, InputError)
        assert "0.28.0" in str(refused)


def test_a_broken_environment_is_listed_and_removed(home: Home) -> None:
    (home.targets / "0.28.0-cpu").mkdir()
    run = CliRunner().invoke
    (row,) = json.loads(run(targets, ["list", "--json"]).stdout)
    assert (row["release"], row["ready"]) == ("0.28.0", False)
    ill = run(targets, ["doctor"])
    assert ill.exit_code == 1
    assert "did not finish; run `schedfuzz targets remove 0.28.0`" in ill.stdout
    assert run(targets, ["remove", "0.28.0"]).exit_code == 0
    assert json.loads(run(targets, ["list", "--json"]).stdout) == []


def test_add_refuses_before_it_builds_anything(home: Home) -> None:
    refused = CliRunner().invoke(targets, ["add", "0.28.0", "nightly"]).exception
    assert isinstance(refused, InputError)
    assert list(home.targets.iterdir()) == []
