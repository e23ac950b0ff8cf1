"""The instrumenting loader on a package of its own: what it marks, and all that it must not change.

Each test writes a small module, imports it plainly and through the loader, and compares.
"""

import asyncio
import contextlib
import importlib
import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from schedfuzz.workers.target import instrument
from schedfuzz.workers.target.instrument import MAX_SITES, CoverageMap, load_transform

PACKAGE = "instrumented_for_test"


class Bench:
    """A package directory whose modules can be imported through the loader."""

    def __init__(self, root: Path) -> None:
        self.folder = root / PACKAGE
        self.folder.mkdir()
        self.coverage = CoverageMap()
        (self.folder / "__init__.py").write_text("")

    def forget(self) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def load(
        self, source: str, transform: instrument.Transform | None = None, marked: bool = True
    ) -> ModuleType:
        """Import `source` through the loader, with a fresh map."""
        self.coverage = CoverageMap()
        (self.folder / "story.py").write_text(source)
        self.forget()
        instrument.install(self.coverage if marked else None, transform)
        try:
            module = importlib.import_module(f"{PACKAGE}.story")
        finally:
            del sys.meta_path[0]
        self.coverage.clear()
        return module

    def plain(self, source: str) -> dict[str, Any]:
        path = self.folder / "plain.py"
        path.write_text(source)
        return runpy.run_path(str(path))

    def lit(self, call: Callable[..., object], *arguments: object) -> set[int]:
        """Return the sites that a call lights."""
        self.coverage.clear()
        call(*arguments)
        return {number for number, byte in enumerate(self.coverage.snapshot()) if byte}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(instrument, "INSTRUMENTED", (PACKAGE,))
    monkeypatch.setattr(instrument, "TRANSFORMED", (PACKAGE,))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    bench = Bench(tmp_path)
    yield bench
    bench.forget()


BRANCHES = """
def branch(x):
    if x == 0:
        return "zero"
    elif x == 1:
        return "one"
    elif x == 2:
        return "two"
    else:
        return "many"
"""
TRIES = """
def attempt(x):
    told = []
    try:
        told.append(1 / x)
    except ZeroDivisionError:
        told.append("zero")
    except TypeError as error:
        told.append(type(error).__name__)
    else:
        told.append("fine")
    finally:
        told.append("end")
    return told
"""
LOOPS = """
def loop(x):
    told = []
    for item in range(x):
        if item == 3:
            break
        told.append(item)
    else:
        told.append("whole")
    while x > 5:
        x -= 1
        if x == 8:
            continue
        told.append(-x)
    else:
        told.append("done")
    return told
"""
MATCHES = """
def match(x):
    match x:
        case 0:
            return "zero"
        case [first, *rest] if rest:
            return first, rest
        case {"key": value} | (value,):
            return value
        case _:
            return "other"
"""
NESTED = """
def outer(x):
    total = 0
    def inner(y):
        nonlocal total
        total += y
        return lambda z: z + total if z else [w for w in range(y) if w]
    class Local:
        kind = "local"
        def method(self):
            return inner(x)(x), self.kind, __class__.__name__
    return Local().method(), (lambda: inner(2)(0))(), total
"""
ASYNCS = """
import contextlib
async def numbers(x):
    for item in range(x):
        yield item
@contextlib.asynccontextmanager
async def opened(told):
    told.append("in")
    yield
    told.append("out")
async def work(x):
    told = []
    async with opened(told):
        async for item in numbers(x):
            told.append(item)
        else:
            told.append("whole")
    return told
def run(x):
    import asyncio
    return asyncio.run(work(x))
"""
GENERATORS = """
def generate(x):
    got = yield x
    try:
        yield from range(got)
    finally:
        yield "closed"
def drive(x):
    steps = generate(x)
    return [next(steps), steps.send(2), *steps]
def grouped(x):
    try:
        raise ExceptionGroup("both", [ValueError(x), KeyError(x)])
    except* ValueError as errors:
        return_value = len(errors.exceptions)
    except* KeyError:
        return_value = "key"
    return return_value
"""
# name -> (source, function, arguments, how many different sets of sites they light)
SHAPES: dict[str, tuple[str, str, list[Any], int]] = {
    "if, elif, else": (BRANCHES, "branch", [0, 1, 2, 3], 4),
    "try, except, else, finally": (TRIES, "attempt", [0, 1, "text"], 3),
    "for and while with else": (LOOPS, "loop", [0, 2, 3, 5, 7, 10], 5),
    "match": (MATCHES, "match", [0, [1, 2], {"key": 5}, [4], "x"], 4),
    "nested functions and classes": (NESTED, "outer", [0, 3], 1),
    "async": (ASYNCS, "run", [0, 3], 2),
    "generators": (GENERATORS, "drive", [1], 1),
    "except*": (GENERATORS, "grouped", [1], 1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_behaves_as_before_and_its_branches_light_sites(bench: Bench, name: str) -> None:
    source, function, arguments, kinds = SHAPES[name]
    plain = bench.plain(source)[function]
    module = bench.load(source)
    marked = getattr(module, function)
    lit = []
    for argument in arguments:
        assert marked(argument) == plain(argument)
        lit.append(frozenset(bench.lit(marked, argument)))
    assert len(set(lit)) == kinds
    assert all(lit)


def test_a_block_of_one_if_is_lit_when_the_if_is_not_taken(bench: Bench) -> None:
    source = "def f(items):\n    for item in items:\n        if item:\n            items.clear()\n"
    module = bench.load(source)
    assert bench.lit(module.f, []) < bench.lit(module.f, [0]) < bench.lit(module.f, [1])


def test_a_statement_that_raises_first_leaves_its_block_lit(bench: Bench) -> None:
    source = "def f(x):\n    if x:\n        x.missing()\n        print(x)\n"
    module = bench.load(source)

    def call(x: object) -> None:
        with contextlib.suppress(AttributeError):
            module.f(x)

    assert bench.lit(call, None) < bench.lit(call, 7)


DOCUMENTED = '''"""The module."""
from __future__ import annotations
import dataclasses
@dataclasses.dataclass
class Thing:
    """The class."""
    size: Missing = 3
    def only(self):
        """Only words."""
    async def words(self):
        """Words and work."""
        return self.size
    def nothing(self): ...
    @property
    def text(self):
        "A property."
        return "text"
'''


def test_docstrings_and_future_imports_survive(bench: Bench) -> None:
    module = bench.load(DOCUMENTED)
    thing = module.Thing
    documents = [
        module.__doc__, thing.__doc__, thing.only.__doc__, thing.words.__doc__,
        thing.nothing.__doc__, thing.text.__doc__,
    ]  # fmt: skip
    assert documents == [
        "The module.", "The class.", "Only words.", "Words and work.", None, "A property.",
    ]  # fmt: skip
    assert thing.__annotations__ == {"size": "Missing"}
    assert asyncio.run(thing().words()) == 3
    assert bench.lit(thing().only) and bench.lit(lambda: thing().text)


def test_names_and_sources_are_those_of_the_file(bench: Bench) -> None:
    module = bench.load(NESTED)
    assert "__schedfuzz_map__" not in inspect.getsource(module)
    assert inspect.getsource(module.outer).startswith("def outer(x):")
    assert module.outer.__code__.co_filename == str(bench.folder / "story.py")
    assert module.outer.__code__.co_varnames[:1] == ("x",)


def where(call: Callable[..., object], *arguments: object) -> list[tuple[str, int, str | None]]:
    try:
        call(*arguments)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return [(frame.name, frame.lineno or 0, frame.line) for frame in frames[1:]]
    raise AssertionError("it was to raise")


RAISES = '''
class Deep:
    def first(self, x):
        """Documented."""
        if x:
            for _ in range(2):
                return self.second(x)
        raise ValueError("no x")
    def second(self, x):
        with open(x) as file:
            return file
    def third(self, x):
        assert x > 5, (
            x
        )
'''


def test_line_numbers_in_tracebacks_are_kept(bench: Bench) -> None:
    plain = bench.plain(RAISES)["Deep"]()
    marked = bench.load(RAISES).Deep()
    for method, argument in (("first", 0), ("first", "/no/such"), ("third", 2)):
        want = where(getattr(plain, method), argument)
        assert want and where(getattr(marked, method), argument) == want


def test_first_lines_of_functions_are_kept(bench: Bench) -> None:
    plain, marked = bench.plain(RAISES)["Deep"], bench.load(RAISES).Deep
    for name in ("first", "second", "third"):
        one, two = getattr(plain, name).__code__, getattr(marked, name).__code__
        assert one.co_firstlineno == two.co_firstlineno
        lines = {line for _, _, line in one.co_lines() if line}
        assert {line for _, _, line in two.co_lines() if line} == lines


def test_sites_are_numbered_alike_each_time_and_differ_from_each_other(bench: Bench) -> None:
    source = BRANCHES + TRIES + LOOPS + MATCHES + NESTED
    counts, lit = [], []
    for _ in range(2):
        module = bench.load(source)
        counts.append(bench.coverage.sites)
        lit.append([bench.lit(module.branch, x) for x in range(4)] + [bench.lit(module.loop, 9)])
    assert counts[0] == counts[1] > 25
    assert lit[0] == lit[1]
    assert not set.union(*lit[0][:4]) & lit[0][4]


def test_the_transform_comes_first_and_is_covered(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "change.py"
    file.write_text(
        "import ast\n"
        "def change(name, tree):\n"
        f"    assert name.startswith('{PACKAGE}')\n"
        "    if name.endswith('.story'):\n"
        "        tree.body += ast.parse('def added(x):\\n    if x:\\n        return 2').body\n"
        "    return tree\n"
    )
    transform = load_transform(file, "change")
    module = bench.load(BRANCHES, transform)
    assert module.added(1) == 2
    assert bench.lit(module.added, 0) != bench.lit(module.added, 1)
    bare = bench.load(BRANCHES, transform, marked=False)
    assert bare.added(1) == 2
    assert not hasattr(bare, instrument.MAP_NAME) and bench.coverage.sites == 0


def test_a_transformed_module_outside_the_instrumented_ones_is_not_marked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instrument, "INSTRUMENTED", (f"{PACKAGE}.sto",))
    module = bench.load(BRANCHES, lambda _, tree: tree)
    assert module.branch(1) == "one"
    assert bench.coverage.sites == 0


def test_other_modules_are_left_alone() -> None:
    finder = instrument.Finder(CoverageMap(), None)
    for name in ("json", "vllm.v1.corefoo", "vllm.v1.worker.core"):
        assert finder.find_spec(name, None) is None


def test_missing_transforms_and_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "change.py"
    file.write_text("def other(name, tree): return tree\n")
    with pytest.raises(AttributeError, match="change"):
        load_transform(file, "change")
    with pytest.raises(OSError):
        load_transform(tmp_path / "none.py", "change")
    with pytest.raises(OSError):
        load_transform(tmp_path / "words.txt", "change")


def test_a_full_map_shares_its_last_site() -> None:
    coverage = CoverageMap()
    numbers = [coverage.new_site() for _ in range(MAX_SITES + 5)]
    assert numbers[: MAX_SITES + 1] == [*range(MAX_SITES), MAX_SITES - 1]
    assert len(coverage.snapshot()) == coverage.sites == MAX_SITES


def test_each_site_says_where_it_is(bench: Bench) -> None:
    source = "class C:\n    def f(self, n):\n        '''T.'''\n        if n:\n            n = 1\n"
    source += "        def g():\n            return n\n        return g\n"
    module = bench.load(source)
    names = {f"{PACKAGE}.story:C.f:5", f"{PACKAGE}.story:C.f:4", f"{PACKAGE}.story:C.f.g:7"}
    assert set(bench.coverage.where) == names
    lit = bench.lit(module.C().f, 0)
    assert {bench.coverage.where[number] for number in lit} == {f"{PACKAGE}.story:C.f:4"}
