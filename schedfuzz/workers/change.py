"""Nouns: change, changed block.

What a branch changes of the code that a hunt can run. A change is told by the blocks of statements
that it touches, for those are the sites of the coverage map; comments and docstrings are no change.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedfuzz.workers import clone as git
from schedfuzz.workers.target.instrument import SCOPES, blocks, is_text, site_line

# What the engine's process runs without a model; the rest of vLLM is no scheduler's concern.
SCHEDULING = (
    "vllm/v1/core/", "vllm/v1/request.py", "vllm/v1/engine/core.py", "vllm/v1/structured_output/",
    "vllm/v1/kv_cache_interface.py", "vllm/v1/kv_offload/", "vllm/v1/outputs.py",
    "vllm/distributed/kv_transfer/", "vllm/distributed/ec_transfer/", "vllm/config/scheduler.py",
    "vllm/config/cache.py", "vllm/config/speculative.py",
)  # fmt: skip
RUNNING = ("vllm/v1/worker/", "vllm/v1/sample/", "vllm/v1/spec_decode/")


@dataclass(frozen=True)
class Change:
    """`files` are those of the scheduler that differ in what they do; `others` are the rest.

    `blocks` are the (module, line of the site) that a hunt must run to have seen the change.
    """

    files: list[str]
    others: list[str]
    blocks: frozenset[tuple[str, int]]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the changed files."""
        return tuple(_module(path) for path in self.files)


def find_change(clone: Path, base: str, head: str, real: bool) -> Change:
    """Return what differs between two commits or trees (hex); `real` counts the model runner in."""
    relevant = (*SCHEDULING, *RUNNING) if real else SCHEDULING
    changed = git.changed_lines(clone, base, head)
    files, found = [], set()
    old, new = git.files(clone, base), git.files(clone, head)
    for path, lines in changed.items():
        if not path.startswith(relevant) or not path.endswith(".py"):
            continue
        before, after = (_text(clone, blobs.get(path)) for blobs in (old, new))
        if before and after and _meaning(before) == _meaning(after):
            continue
        files.append(path)
        found |= {(_module(path), line) for line in _sites(after, lines)}
    return Change(files, [path for path in changed if path not in files], frozenset(found))


def sites_of(change: Change, where: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the coverage map's sites that the change touches."""
    found = set()
    for number, place in enumerate(where):
        module, _, rest = place.partition(":")
        line = rest.rpartition(":")[2]
        if line and (module, int(line)) in change.blocks:
            found.add(number)
    return frozenset(found)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _text(clone: Path, blob: str | None) -> str:
    """Return a blob's text, "" for no file."""
    return next(git.contents(clone, [blob])).decode(errors="replace") if blob else ""


def _parsed(text: str) -> ast.Module:
    """Return the syntax tree, an empty one for what is no Python: to import it will say so."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _meaning(text: str) -> str:
    """Return what a file does as text, without places, comments and docstrings."""
    tree = _parsed(text)
    if not tree.body:
        return text
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *SCOPES)):
            node.body = [item for item in node.body if not is_text(item)] or [ast.Pass()]
    return ast.dump(tree)


def _sites(text: str, lines: Sequence[range]) -> Iterator[int]:
    """Yield the line of the site of the innermost block around each changed line."""
    spans = []
    for node in ast.walk(_parsed(text)):
        for _, block in blocks(node):
            end = block[-1].end_lineno or block[-1].lineno
            # A function's head belongs to its body: who changes a signature changes each call.
            start = node.lineno if isinstance(node, SCOPES) else block[0].lineno
            spans.append((end - start, start, end, site_line(block)))
    spans.sort()
    for changed in lines:
        for line in changed:
            around = next((span for span in spans if span[1] <= line <= span[2]), None)
            if around is not None:
                yield around[3]
