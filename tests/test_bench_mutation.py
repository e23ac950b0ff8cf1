"""Mutations: each operator on small code, what is left out, and that a mutant is what it says."""

import ast
from pathlib import Path
from typing import Any

import pytest

from schedfuzz.bench.mutants import file_name
from schedfuzz.bench.mutation import Mutation, mutations, transform
from schedfuzz.corpus.errors import InputError
from schedfuzz.workers.target import instrument
from schedfuzz.workers.target.instrument import CoverageMap, load_transform
from schedfuzz.workers.targets import parse_target

MODULE = "vllm.v1.core.block_pool"


def found(body: str, head: str = "def f(self, a, b, c):") -> list[Mutation]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return mutations(MODULE, f"{head}\n{lines}\n")


def said(body: str) -> set[tuple[str, str]]:
    return {(item.operator, item.replacement) for item in found(body)}


RELATION, OFF, DROPPED, SWAPPED = (
    "relation", "off by one", "dropped condition", "swapped branches",
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {(RELATION, "a <= b")}),
        ("return a <= b", {(RELATION, "a < b")}),
        ("return a > b", {(RELATION, "a >= b")}),
        ("return a >= b", {(RELATION, "a > b")}),
        ("return a == b", {(RELATION, "a != b")}),
        ("return a != b", {(RELATION, "a == b")}),
        ("return a is b", set()),
        ("return a < b < c", {(RELATION, "a <= b < c"), (RELATION, "a < b <= c")}),
        ("return 5", {(OFF, "6"), (OFF, "4")}),
        ("return a[0]", {(OFF, "1"), (OFF, "-1")}),
        ("return True", set()),
        ("return a + b", {(OFF, "a + b + 1")}),
        ("return a - b", {(OFF, "a - b + 1")}),
        ("return a * b", set()),
        ("return a + [b]", set()),
        ("return a + 'text'", set()),
        ("return a and b", {(DROPPED, "b"), (DROPPED, "a")}),
        ("return a or b or c", {(DROPPED, "b or c"), (DROPPED, "a or c"), (DROPPED, "a or b")}),
        ("if a:\n    b()", {(DROPPED, "True"), (DROPPED, "False")}),
        (
            "if a:\n    b()\nelse:\n    c()",
            {(DROPPED, "True"), (DROPPED, "False"), (SWAPPED, "not a")},
        ),
        ("return b if a else c", {(SWAPPED, "not a")}),
        ("return b if a == c else c", {(RELATION, "a != c")}),  # swapped would be the same
        ("while a:\n    b()", set()),
    ],
)
def test_an_operator_proposes(body: str, expected: set[tuple[str, str]]) -> None:
    assert said(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        '"""A text, 1 < 2."""',
        "assert a < b, f'{a - 1}'",
        "raise ValueError(f'{a - 1} < 0', a + 1)",
        "logger.debug('%d', a + 1)",
        "self.stats.record(a + 1)",
        "if self.log_stats:\n    b(1)",
        "if self.enable_kv_cache_events and a < b:\n    b(1)",
        "self.prefix_cache_stats = a + 1",
        "x: Literal[1] = a",
        "return f'{a + 1}'",
        "return b(a, timestamp=1)",
    ],
)
def test_what_nobody_can_see_in_a_schedule_is_left_out(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    "source",
    [
        "X = 1\n",
        "class C:\n    size = 1\n",
        "def f(a=1, *, b: 'Literal[1]' = 2) -> 'Literal[3]':\n    return a\n",
        "class C:\n    def __repr__(self):\n        return 1\n",
        "def make_stats(a):\n    return 1\n",
        "@cache(1)\ndef f(a):\n    return a\n",
        "if TYPE_CHECKING:\n    def f():\n        return 1\n",
    ],
)
def test_only_the_bodies_of_functions_are_mutated(source: str) -> None:
    assert mutations(MODULE, source) == []


SOURCE = '''
class Pool:
    def take(self, n, spare):
        """Take."""
        try:
            while n > len(self.free):
                if spare and n < 9:
                    n = n - 1
                elif n == 3:
                    break
                else:
                    n -= 2
        except KeyError:
            n = 4
        finally:
            done = [k + 1 for k in range(n) if k > 0]
        return lambda: done[0] if done else n

    async def give(self):
        def later(x):
            return x + 1
        match self.free:
            case [_]:
                return later(2)
        with self.lock:
            return 7
'''


def test_every_mutation_has_a_name_of_its_own_and_a_site_of_the_map() -> None:
    coverage = CoverageMap()
    instrument._Marker(coverage, MODULE).visit(ast.parse(SOURCE))
    all_found = mutations(MODULE, SOURCE)
    assert len({item.name for item in all_found}) == len(all_found) > 25
    assert {item.site for item in all_found} <= set(coverage.where)
    places = {(item.function, item.span[0]): item.site.rpartition(":")[2] for item in all_found}
    assert places["Pool.take", 6] == "6"  # the body of the try
    assert places["Pool.take", 7] == places["Pool.take", 9] == "7"  # an elif has no site
    assert places["Pool.take", 14] == "14" and places["Pool.take", 16] == "16"
    assert places["Pool.give.later", 21] == "21" and places["Pool.give", 24] == "24"


@pytest.mark.parametrize("mutation", mutations(MODULE, SOURCE), ids=lambda item: item.name)
def test_a_mutants_file_makes_that_change_and_no_other(tmp_path: Path, mutation: Mutation) -> None:
    file = tmp_path / file_name(mutation)
    file.write_text(transform(mutation, "0.29.0"))
    mutate = load_transform(file, "mutate")
    tree = mutate(MODULE, ast.parse(SOURCE))
    compile(ast.fix_missing_locations(tree), "mutant", "exec")
    before, after = (ast.unparse(ast.parse(SOURCE)), ast.unparse(tree))
    changed = [
        (one, two)
        for one, two in zip(before.splitlines(), after.splitlines(), strict=True)
        if one != two
    ]
    assert len(changed) == 1
    assert mutation.replacement in changed[0][1] or "not" in mutation.replacement
    untouched: Any = mutate("vllm.v1.request", ast.parse(SOURCE))
    assert ast.dump(untouched) == ast.dump(ast.parse(SOURCE))
    with pytest.raises(LookupError):
        mutate(MODULE, ast.parse("x = 0"))


def test_a_mutants_file_is_a_target_and_needs_nothing_of_ours(tmp_path: Path) -> None:
    mutation = mutations(MODULE, SOURCE)[0]
    file = tmp_path / file_name(mutation)
    text = transform(mutation, "0.29.0")
    file.write_text(text)
    assert parse_target(f"0.29.0+{file}:mutate").transform == (file.resolve(), "mutate")
    with pytest.raises(InputError):
        parse_target(f"0.29.0+{file}:other")
    imported = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imported] == ["import ast"]
