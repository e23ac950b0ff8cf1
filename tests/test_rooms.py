"""The house's walls: which room imports which, and what the core never touches."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "schedfuzz"
ALLOWED = {
    "corpus": {"corpus"},
    "workers/target": {"corpus", "workers.target"},
    "workers": {"corpus", "workers"},
    "db": {"corpus", "db"},
    "fuzzer": {"corpus", "fuzzer"},
    "cli": {"corpus", "workers", "fuzzer", "db", "cli"},
}
# `hunt` drives the pair; nothing else that thinks may know how things run.
ALSO = {"fuzzer/hunt.py": {"workers"}}
FOREIGN = {"ray", "sqlalchemy", "alembic", "atheris", "vllm", "torch", "click", "rich"}
MAY_USE = {
    "corpus": {"msgspec"},
    "workers/target": {"msgspec", "vllm", "torch"},
    "fuzzer": {"msgspec", "jinja2", "atheris"},
}
ATHERIS_ONLY = "fuzzer/guide.py"


def sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "migrations" not in path.parts)


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT).as_posix()
    return next((room for room in sorted(ALLOWED, reverse=True) if relative.startswith(room)), "")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    room = room_of(path)
    if not room:
        pytest.skip("the package's own __init__")
    relative = path.relative_to(ROOT).as_posix()
    allowed = ALLOWED[room] | ALSO.get(relative, set())
    for name in imports(path):
        inner = re.fullmatch(r"schedfuzz\.(.+)", name)
        if inner:
            assert any(
                inner[1] == other or inner[1].startswith(other + ".") for other in allowed
            ), f"{relative} imports {name}"


@pytest.mark.parametrize("room", ["corpus", "workers/target", "fuzzer"])
def test_the_core_stays_free_of_frameworks(room: str) -> None:
    for path in sources():
        relative = path.relative_to(ROOT).as_posix()
        if room_of(path) != room:
            continue
        tops = {name.split(".")[0] for name in imports(path)} & FOREIGN
        if relative != ATHERIS_ONLY:
            tops -= MAY_USE[room] - {"atheris"}
        assert not tops - MAY_USE[room] and not (tops and relative != ATHERIS_ONLY), (
            f"{relative} imports {sorted(tops)}"
        )


def test_there_are_no_import_cycles_between_modules() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources():
        name = "schedfuzz." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        graph[name.removesuffix(".__init__")] = imports(path)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name in done or name not in graph:
            return
        for target in graph[name]:
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())
