"""Nouns: what fits an engine: its groups, its connector, its draft widths, its retention.

The parts of an engine as vLLM takes them, for relations to compare with and to mend with.
"""

from msgspec.structs import replace

from schedfuzz.corpus.parts import Connector, Group
from schedfuzz.corpus.scenario import Engine


def has_group(engine: Engine, kind: str) -> bool:
    """Return whether one of the engine's KV cache groups is of this kind."""
    return any(group.kind == kind for group in engine.groups)


def window_fits(group: Group) -> bool:
    """Return whether a group has a window exactly if its kind has one."""
    return (group.window > 0) == (group.kind == "sliding_window")


def mended_group(group: Group) -> Group:
    """Return the group with a window if its kind has one, else without."""
    window = max(1, group.window) if group.kind == "sliding_window" else 0
    return group if window == group.window else Group(group.kind, window)


def has_one_full_group(engine: Engine) -> bool:
    """Return whether full attention is all that the engine's KV cache is for."""
    return len(engine.groups) < 2 and all(group.kind == "full" for group in engine.groups)


def fitting_connector(engine: Engine) -> Connector | None:
    """Return the connector with what its kind has; offloading with other groups is scripted."""
    connector = engine.connector
    if connector is None:
        return None
    if connector.kind == "offloading" and has_one_full_group(engine):
        return Connector(
            kind="offloading", offload_blocks=connector.offload_blocks or 32,
            store_steps=connector.store_steps, load_steps=connector.load_steps,
        )  # fmt: skip
    single = connector.single_group and has_one_full_group(engine)
    return replace(
        connector, kind="scripted", offload_blocks=0, store_steps=0, load_steps=0,
        single_group=single and engine.model == "autoregressive",
    )  # fmt: skip


def retained(engine: Engine) -> int | None:
    """Return the retention interval that vLLM takes: of states and windows, in whole blocks."""
    wanted = engine.prefix_cache_retention_interval
    sparse = has_group(engine, "mamba") or has_group(engine, "sliding_window")
    if not (sparse and engine.prefix_caching):
        return 0
    return wanted if wanted is None else -(-wanted // engine.block_size) * engine.block_size


MOST_REQUESTS = 1 << 16  # in a batch: far beyond what a scenario can hold


def widths_fit(engine: Engine) -> bool:
    """Return whether the rows of draft widths count batch sizes up without a gap."""
    least = 1
    for low, high, width in engine.spec_widths:
        rising = low == least and low <= high <= MOST_REQUESTS
        if not (rising and 0 <= width <= engine.num_speculative_tokens):
            return False
        least = high + 1
    return True


def mended_widths(engine: Engine) -> tuple[tuple[int, int, int], ...]:
    """Return the rows of draft widths so that they do."""
    found, least = [], 1
    for _, high, width in engine.spec_widths:
        if least > MOST_REQUESTS:
            break
        high = min(max(least, high), MOST_REQUESTS)
        found.append((least, high, min(max(width, 0), engine.num_speculative_tokens)))
        least = high + 1
    return tuple(found)
