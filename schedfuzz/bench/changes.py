"""Nouns: own text, changed block.

Where two releases differ within one function, block by block. A block's own text is its statements
without the blocks inside them, so a changed line marks the innermost block it stands in and not
every block around it; a block's line is that of its coverage site, which says whether it ran.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from schedfuzz.workers.target.instrument import SCOPES, blocks, is_text, site_line

Function = ast.FunctionDef | ast.AsyncFunctionDef
PARTS = (ast.ExceptHandler, ast.match_case)  # what holds statements and is none


def functions(source: str) -> dict[str, Function]:
    """Return every function of a module by its qualified name, nested ones included."""
    found: dict[str, Function] = {}

    def collect(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = (*names, child.name) if isinstance(child, SCOPES) else names
            if isinstance(child, Function):
                found[".".join(inner)] = child
            collect(child, inner)

    collect(ast.parse(source), ())
    return found


def changed_lines(before: str, after: str, prefix: str) -> set[str]:
    """Return `qualname:line` of each block in `before` whose own text is not in `after`.

    Only functions whose qualified name starts with `prefix` count; a function that `after` has not
    is changed as a whole.
    """
    theirs = functions(after)
    found: set[str] = set()
    for name, function in functions(before).items():
        if name != prefix and not name.startswith(f"{prefix}."):
            continue
        other = theirs.get(name)
        known = Counter(text for text, _ in _blocks(other)) if other else Counter()
        for text, line in _blocks(function):
            if known[text]:
                known[text] -= 1
            else:
                found.add(f"{name}:{line}")
    return found


def _blocks(function: Function) -> Iterator[tuple[str, int]]:
    """Yield own text and line of each block of a function, without the functions inside it."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        for _, block in blocks(node):
            text = "\n".join(_own_text(item) for item in block if not is_text(item))
            yield text, site_line(block)
        waiting += [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, Function)
        ]


def _own_text(node: ast.AST) -> str:
    with_site = {field for field, _ in blocks(node)}
    parts = [type(node).__name__]
    for field, value in ast.iter_fields(node):
        if field in with_site:
            continue
        for item in value if isinstance(value, list) else [value]:
            nested = isinstance(item, ast.stmt | PARTS[0] | PARTS[1])
            text = ast.dump(item) if isinstance(item, ast.AST) else repr(item)
            parts.append(_own_text(item) if nested else text)
    return " ".join(parts)
