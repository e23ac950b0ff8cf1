"""Nouns: part passes (drop parts, plain fields, lower numbers), leaf, path.

What a dimension adds to an engine or a request is a small tree of structs, tuples and numbers. One
set of passes walks any such tree, so a new field is minimized the day it is written.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from schedfuzz.corpus.events import ThrottlePrefills
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.fuzzer.passes import Less, Pass, Search, descend

Path = tuple[str | int, ...]
# Lengths, times and drafts have passes of their own that know what hangs together.
OWN_PASSES = {
    "engine": ("max_model_len", "num_blocks", "block_size", "max_num_seqs",
               "max_num_batched_tokens", "long_prefill_token_threshold", "num_speculative_tokens"),
    "requests": ("id", "prompt", "max_tokens", "arrival", "priority", "accept"),
}  # fmt: skip


def drop_parts(best: Scenario) -> Search:
    """Set every optional field of the requests to its default, for all at once, then one by one;
    then drop single members of what is left."""
    for field in fields(type(best.requests[0])):
        if not field.required and field.name not in OWN_PASSES["requests"]:
            everywhere = tuple(replace(r, **{field.name: field.default}) for r in best.requests)
            found = yield replace(best, requests=everywhere)
            if found is best:
                for index in range(len(best.requests)):
                    best = yield put(best, ("requests", index, field.name), field.default)
            else:
                best = found
    for path, value in reversed(list(_tuples(best))):
        for index in reversed(range(len(value))):
            less = value[:index] + value[index + 1 :]
            best = yield put(best, path, less) if _holds(best, path, value) else best
            value = get(best, path) if _reaches(best, path) else ()
            if not value:
                break
    return best


def plain_fields(best: Scenario) -> Search:
    """Set the fields of parts to their defaults."""
    for path, struct in list(_structs(best)):
        for field in fields(type(struct)):
            if not field.required and _reaches(best, path):
                best = yield put(best, (*path, field.name), field.default)
    return best


def lower_numbers(best: Scenario) -> Search:
    """Lower every number of the parts, towards zero, as far as it goes."""
    for path, value in list(_numbers(best)):
        if _holds(best, path, value):
            best = yield from descend(best, value, _lower(path))
    return best


def _lower(path: Path) -> Less:
    return lambda best, amount: put(best, path, get(best, path) - amount)


# -- walking the tree ----------------------------------------------------------------------------


def get(node: Any, path: Path) -> Any:
    """Return what stands at a path. Raises AttributeError, IndexError or TypeError."""
    for key in path:
        node = node[key] if isinstance(key, int) else getattr(node, key)
    return node


def put(node: Any, path: Path, value: Any) -> Any:
    """Return the tree with another value at a path."""
    if not path:
        return value
    key, *rest = path
    if isinstance(key, int):
        return (*node[:key], put(node[key], tuple(rest), value), *node[key + 1 :])
    return replace(node, **{key: put(getattr(node, key), tuple(rest), value)})


def _reaches(best: Scenario, path: Path) -> bool:
    try:
        return get(best, path) is not None
    except (AttributeError, IndexError, TypeError):
        return False


def _holds(best: Scenario, path: Path, value: Any) -> bool:
    return _reaches(best, path) and bool(get(best, path) == value)


def _nodes(node: Any, path: Path, skipped: tuple[str, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every node below one with its path, parents first, but for its `skipped` fields."""
    members: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, msgspec.Struct):
        members = ((name, getattr(node, name)) for name in node.__struct_fields__)
    elif isinstance(node, tuple):
        members = enumerate(node)
    for key, member in members:
        if key not in skipped:
            yield (*path, key), member
            yield from _nodes(member, (*path, key))


def _all(best: Scenario) -> Iterator[tuple[Path, Any]]:
    for index, request in enumerate(best.requests):
        yield from _nodes(request, ("requests", index), OWN_PASSES["requests"])
    yield from _nodes(best.engine, ("engine",), OWN_PASSES["engine"])
    for index, event in enumerate(best.events):
        if isinstance(event, ThrottlePrefills):
            yield ("events", index, "steps"), event.steps


def _tuples(best: Scenario) -> Iterator[tuple[Path, tuple[Any, ...]]]:
    """Yield what is a list of members; a row within one is a member, not a list."""
    for path, node in _all(best):
        if isinstance(node, tuple) and node and not isinstance(path[-1], int):
            yield path, node


def _structs(best: Scenario) -> Iterator[tuple[Path, msgspec.Struct]]:
    return ((path, node) for path, node in _all(best) if isinstance(node, msgspec.Struct))


def _numbers(best: Scenario) -> Iterator[tuple[Path, int]]:
    for path, node in _all(best):
        if isinstance(node, int) and not isinstance(node, bool) and node > 0:
            yield path, node


PART_PASSES: tuple[Pass, ...] = (drop_parts, plain_fields, lower_numbers)
