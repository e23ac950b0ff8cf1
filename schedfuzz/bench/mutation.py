"""Nouns: mutation, operator.

A mutation replaces one expression of a module's source. Every operator can be told as that: to swap
two branches is to negate their condition. A mutation knows the coverage site of its block, so it is
known beforehand which scenarios can tell the mutant from the original: those that run the block.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from schedfuzz.workers.target.instrument import SCOPES, blocks, is_text, site_line

# What only watches: its mutants can be told from the original by nobody who looks at schedules.
WATCHING = re.compile(
    r"(^|_)(log|logger|logging|stats?|metrics?|events?|trace|tracing|profiler?|timestamps?)(_|$)"
)
UNSEEN = {"__repr__", "__str__", "__del__", "shutdown"}
LEFT_OUT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
NOT_CODE = {"annotation", "returns", "type_params", "decorator_list", "args"}
RELATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
SIGNS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}

Span = tuple[int, int, int, int]
Proposal = tuple[str, str, ast.expr, ast.expr]  # operator, what it does, old node, new node


class Mutation(msgspec.Struct, frozen=True):
    """One replacement in a module: the node of type `node` at `span` becomes `replacement`.

    `span` is (line, column, end line, end column) as in `ast`; `site` is the coverage site
    (`module:qualname:line`) of the block around it; `what` says what the operator does here;
    `original` is the source of what is replaced.
    """

    module: str
    function: str
    operator: str
    what: str
    site: str
    node: str
    span: Span
    replacement: str
    original: str = ""

    @property
    def name(self) -> str:
        """Return the mutation's own name among those of its release."""
        place = "{}:{}-{}:{}".format(*self.span)
        return f"{self.module}:{self.function}:{place}: {self.operator}: {self.what}"


def mutations(module: str, source: str) -> list[Mutation]:
    """Return every mutation of a module's source, in the order of the source."""
    finder = _Finder(module)
    finder.visit(ast.parse(source), "")
    return sorted(finder.found, key=lambda mutation: (mutation.span, mutation.name))


class _Finder:
    def __init__(self, module: str) -> None:
        self.module = module
        self.names: list[str] = []
        self.found: list[Mutation] = []

    def visit(self, node: ast.AST, site: str) -> None:
        """Collect the mutations of a node within the block of `site` ("": none)."""
        if _is_left_out(node):
            return
        names = [node.name] if isinstance(node, SCOPES) else []
        self.names += names
        if site:
            self._propose(node, site)
        inner = dict(blocks(node))
        for field, value in ast.iter_fields(node):
            if field in NOT_CODE and not isinstance(node, ast.Call):
                continue
            block = inner.get(field)
            here = f"{self.module}:{'.'.join(self.names)}:{site_line(block)}" if block else site
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child, here)
        del self.names[len(self.names) - len(names) :]

    def _propose(self, node: ast.AST, site: str) -> None:
        for operator, what, old, new in proposals(node):
            span = (old.lineno, old.col_offset, old.end_lineno or 0, old.end_col_offset or 0)
            self.found.append(
                Mutation(
                    self.module, ".".join(self.names), operator, what, site,
                    type(old).__name__, span, ast.unparse(ast.fix_missing_locations(new)),
                    ast.unparse(old),
                )
            )  # fmt: skip


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, LEFT_OUT):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name in UNSEEN or bool(WATCHING.search(node.name))
    if isinstance(node, ast.If):
        return _watches(node.test) or _mentions(node.test, "TYPE_CHECKING")
    if isinstance(node, ast.Assign):
        return all(map(_watches, node.targets))
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _watches(node.target)
    if isinstance(node, ast.Expr):
        call = node.value
        return is_text(node) or (isinstance(call, ast.Call) and _watches(call.func))
    return isinstance(node, ast.keyword) and bool(WATCHING.search(node.arg or ""))


def _names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def _watches(node: ast.AST) -> bool:
    return any(WATCHING.search(name) for name in _names(node))


def _mentions(node: ast.AST, name: str) -> bool:
    return name in _names(node)


# -- the operators -------------------------------------------------------------------------------


def proposals(node: ast.AST) -> Iterator[Proposal]:
    """Yield (operator, what, old node, new node) for what can be changed at this very node."""
    if isinstance(node, ast.Compare):
        yield from _relations(node)
    elif isinstance(node, ast.BoolOp):
        yield from _without_operand(node)
    elif isinstance(node, ast.BinOp):
        yield from _sum_off_by_one(node)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            value = node.value + step
            yield "off by one", f"{node.value} to {value}", node, ast.Constant(value)
    elif isinstance(node, ast.If | ast.IfExp):
        yield from _conditions(node)


def _relations(node: ast.Compare) -> Iterator[Proposal]:
    for index, relation in enumerate(node.ops):
        other = RELATIONS.get(type(relation))
        if other is not None:
            ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            which = f"{index + 1}. " if len(node.ops) > 1 else ""
            what = f"{which}{SIGNS[type(relation)]} to {SIGNS[other]}"
            yield "relation", what, node, ast.Compare(node.left, ops, node.comparators)


def _without_operand(node: ast.BoolOp) -> Iterator[Proposal]:
    word = "and" if isinstance(node.op, ast.And) else "or"
    for index in range(len(node.values)):
        rest = node.values[:index] + node.values[index + 1 :]
        new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield "dropped condition", f"part {index + 1} of the `{word}`", node, new


def _sum_off_by_one(node: ast.BinOp) -> Iterator[Proposal]:
    """Yield a sum or difference one larger; one of texts or lists would only raise TypeError."""
    never_numbers = ast.List | ast.Tuple | ast.JoinedStr | ast.ListComp | ast.Set | ast.Dict
    for side in (node.left, node.right):
        text = isinstance(side, ast.Constant) and not isinstance(side.value, int)
        if text or isinstance(side, never_numbers):
            return
    if isinstance(node.op, ast.Add | ast.Sub):
        word = "sum" if isinstance(node.op, ast.Add) else "difference"
        yield "off by one", f"a {word} + 1", node, ast.BinOp(node, ast.Add(), ast.Constant(1))


def _conditions(node: ast.If | ast.IfExp) -> Iterator[Proposal]:
    test: Any = node.test
    if isinstance(node, ast.If):
        for value in (True, False):
            yield "dropped condition", f"always {value}", test, ast.Constant(value)
    # The same as another relation when the condition is a lone == or !=.
    lone = isinstance(test, ast.Compare) and len(test.ops) == 1
    if node.orelse and not (lone and isinstance(test.ops[0], ast.Eq | ast.NotEq)):
        yield "swapped branches", "condition negated", test, ast.UnaryOp(ast.Not(), test)


# -- a mutation as a transform -------------------------------------------------------------------

TRANSFORM = '''"""A mutant of vLLM {release}, to run as the target {release}+THIS_FILE.py:mutate.

{where}, line {line}: {what}.
"""

import ast

MODULE = {module!r}
NODE, SPAN = {node!r}, {span!r}
REPLACEMENT = {replacement!r}


class Mutate(ast.NodeTransformer):
    done = 0

    def visit(self, node):
        at = [getattr(node, name, None) for name in ast.expr._attributes]
        if type(node).__name__ != NODE or tuple(at) != SPAN:
            return self.generic_visit(node)
        self.done += 1
        new = ast.parse(REPLACEMENT, mode="eval").body
        for part in ast.walk(new):
            ast.copy_location(part, node)
        return new


def mutate(name, tree):
    if name != MODULE:
        return tree
    mutant = Mutate()
    tree = mutant.visit(tree)
    if mutant.done != 1:
        raise LookupError("this is not the source that the mutant was made of")
    return tree
'''


def transform(mutation: Mutation, release: str) -> str:
    """Return the mutation as a file that stands alone: a target's source transform `mutate`."""
    return TRANSFORM.format(
        release=release, where=f"{mutation.module}:{mutation.function}", line=mutation.span[0],
        what=f"{mutation.operator}, {mutation.what}", module=mutation.module, node=mutation.node,
        span=mutation.span, replacement=mutation.replacement,
    )  # fmt: skip
