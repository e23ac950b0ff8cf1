"""The house's walls: which room imports which, and what the core never touches."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "schedfuzz"
ALLOWED = {
    "corpus": {"corpus"},
    "workers/target": {"corpus", "workers.target"},
    "workers": {"corpus", "workers"},
    "db": {"corpus", "db"},
    "fuzzer": {"corpus", "fuzzer"},
    "bench": {"corpus", "workers", "fuzzer", "bench"},
    "plugin": {"corpus", "workers", "fuzzer", "plugin"},
    "service": {"corpus", "workers", "fuzzer", "db", "service"},
    "report": {"corpus", "fuzzer", "db", "report"},
    "web": {"corpus", "fuzzer", "db", "report", "web"},
    "cli": {"corpus", "workers", "fuzzer", "db", "bench", "service", "report", "web", "cli"},
}
# What the core (the language, what runs in a target, what thinks) never imports.
CORE = ("corpus", "workers/target", "fuzzer")
FRAMEWORKS = {"ray", "sqlalchemy", "alembic", "atheris"}
ATHERIS_ONLY = "fuzzer/guide.py"
# The other packages that a room of the core may import, besides the standard library and ours.
MAY_USE = {
    "corpus": {"msgspec"},
    "workers/target": {"msgspec", "vllm", "torch", "xgrammar", "coverage"},
    "fuzzer": {"msgspec", "jinja2"},
}


def sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "migrations" not in path.parts)


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT).as_posix()
    return next(
        (room for room in sorted(ALLOWED, reverse=True) if relative.startswith(f"{room}/")), ""
    )


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
    allowed = ALLOWED[room]
    for name in imports(path):
        inner = re.fullmatch(r"schedfuzz\.(.+)", name)
        if inner:
            assert any(
                inner[1] == other or inner[1].startswith(other + ".") for other in allowed
            ), f"{relative} imports {name}"


def core() -> list[Path]:
    return [path for path in sources() if room_of(path) in CORE]


@pytest.mark.parametrize("path", core(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_core_imports_no_framework(path: Path) -> None:
    """Only the guide knows Atheris; ray, sqlalchemy and alembic are for other rooms."""
    relative = path.relative_to(ROOT).as_posix()
    tops = {name.split(".")[0] for name in imports(path)}
    allowed = {"atheris"} if relative == ATHERIS_ONLY else set()
    assert tops & FRAMEWORKS <= allowed
    known = MAY_USE[room_of(path)] | {"schedfuzz"} | set(sys.stdlib_module_names)
    assert tops <= known | allowed


def test_the_guide_is_where_atheris_is_imported() -> None:
    assert "atheris" in imports(ROOT / ATHERIS_ONLY)


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
