"""Nouns: site, coverage map, source transform.

The scheduler's modules are compiled from their installed source with a store into a shared byte
map at the start of every block of statements: 1.2 times the time of a plain run, where tracing
costs three to seven times. A target's source transform, if any, is applied first.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

INSTRUMENTED = ("vllm.v1.core", "vllm.v1.request")
TRANSFORMED = (
    *INSTRUMENTED, "vllm.v1.engine.core", "vllm.v1.structured_output",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading", "vllm.v1.worker", "vllm.v1.sample",
    "vllm.v1.spec_decode",
)  # fmt: skip
MAX_SITES = 8192
MAP_NAME = "__schedfuzz_map__"
BLOCKS = ("body", "orelse", "finalbody")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Transform = Callable[[str, ast.Module], ast.Module]


class CoverageMap:
    """One byte per site, 1 when it ran; sites are numbered in import order.

    `where` says of each site, by its number, `module:qualname:line`.
    """

    def __init__(self) -> None:
        self.bytes = bytearray(MAX_SITES)
        self.where: list[str] = []
        self._zero = bytes(MAX_SITES)

    @property
    def sites(self) -> int:
        """The number of sites."""
        return len(self.where)

    def new_site(self, where: str = "") -> int:
        """Return the number of a new site (the last one is shared once the map is full)."""
        if len(self.where) < MAX_SITES:
            self.where.append(where)
        return len(self.where) - 1

    def clear(self) -> None:
        """Forget all that ran."""
        self.bytes[:] = self._zero

    def snapshot(self) -> bytes:
        """Return a copy of the sites' bytes."""
        return bytes(self.bytes[: self.sites])


def blocks(node: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield (field, statements) for each block directly under `node` that has a site."""
    if isinstance(node, ast.Module | ast.ClassDef):
        return
    for name in BLOCKS:
        block = getattr(node, name, None)
        if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
            continue
        # An elif needs no site of its own: its blocks have theirs.
        elif_only = isinstance(node, ast.If) and name == "orelse" and len(block) == 1
        if not (elif_only and isinstance(block[0], ast.If)):
            yield name, block


def site_line(block: list[ast.stmt]) -> int:
    """Return the line of the block's site: that of the statement it stands before."""
    return block[min(int(is_text(block[0])), len(block) - 1)].lineno


class _Marker(ast.NodeTransformer):
    def __init__(self, coverage: CoverageMap, module: str = "") -> None:
        self.coverage = coverage
        self.module = module
        self.names: list[str] = []

    def generic_visit(self, node: ast.AST) -> ast.AST:
        names = [node.name] if isinstance(node, SCOPES) else []
        self.names += names
        super().generic_visit(node)
        for field, block in list(blocks(node)):
            setattr(node, field, self._marked(block))
        del self.names[len(self.names) - len(names) :]
        return node

    def _marked(self, block: list[ast.stmt]) -> list[ast.stmt]:
        line = site_line(block)
        number = self.coverage.new_site(f"{self.module}:{'.'.join(self.names)}:{line}")
        site = ast.Assign(
            [ast.Subscript(ast.Name(MAP_NAME, ast.Load()), ast.Constant(number), ast.Store())],
            ast.Constant(1),
        )
        at = int(is_text(block[0]))  # a docstring must stay first
        ast.copy_location(site, block[min(at, len(block) - 1)])
        return [*block[:at], ast.fix_missing_locations(site), *block[at:]]


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, or another bare string."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(
        self, name: str, path: str, coverage: CoverageMap | None, transform: Transform | None,
        covered: Sequence[str] = INSTRUMENTED,
    ) -> None:  # fmt: skip
        super().__init__(name, path)
        self.covered = covered
        self.coverage = coverage
        self.transform = transform

    def get_code(self, fullname: str) -> CodeType | None:
        # The cached bytecode is of the untouched source, so it is never used here.
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        if self.transform is not None:
            tree = ast.fix_missing_locations(self.transform(fullname, tree))
        if self.coverage is not None and _within(fullname, self.covered):
            tree = _Marker(self.coverage, fullname).visit(tree)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        if self.coverage is not None:
            module.__dict__[MAP_NAME] = self.coverage.bytes
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the engine's modules as usual and loads them through the instrumenting loader."""

    def __init__(
        self, coverage: CoverageMap | None, transform: Transform | None, cover: Sequence[str] = ()
    ) -> None:
        self.coverage = coverage
        self.transform = transform
        self.covered = (*INSTRUMENTED, *cover)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # The others keep their cached bytecode where no transform looks at them.
        transformed = () if self.transform is None else TRANSFORMED
        if not _within(name, (*self.covered, *transformed)):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(
                name, spec.loader.path, self.coverage, self.transform, self.covered
            )
        return spec


def install(
    coverage: CoverageMap | None, transform: Transform | None, cover: Sequence[str] = ()
) -> None:
    """Instrument what is imported from now on of the scheduler and of the modules in `cover`."""
    sys.meta_path.insert(0, Finder(coverage, transform, cover))


def load_transform(path: Path, function: str) -> Transform:
    """Return the source transform in a Python file. Raises AttributeError, OSError, SyntaxError."""
    spec = importlib.util.spec_from_file_location("schedfuzz_transform", path)
    if spec is None or spec.loader is None:
        raise OSError(f"{path} is not a Python file")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    transform: Transform = getattr(module, function)
    return transform


def _within(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
