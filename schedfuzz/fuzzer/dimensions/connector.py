"""Nouns: the KV connector's dimension, scripts.

What is loaded, when it arrives and what of it fails. Loads that end on, before and after a block's
boundary or the prompt's end differ for a scheduler; so do loads that arrive at once, and late.
"""

from random import Random
from typing import Literal

from msgspec.structs import replace

from schedfuzz.corpus.parts import Connector, External
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.dimensions.connector_motifs import CONNECTOR_MOTIFS
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.dimensions.groups import KV_GROUPS
from schedfuzz.fuzzer.draft import Draft

Role = Literal["kv_both", "kv_producer", "kv_consumer"]
ROLES: tuple[Role, ...] = (
    "kv_both", "kv_both", "kv_both", "kv_consumer", "kv_consumer", "kv_producer",
)  # fmt: skip
STEPS = (0, 0, 1, 1, 2, 3, 5, 9)


def _shape(rng: Random, engine: Engine) -> Engine:
    if not engine.groups and rng.random() < 0.15:
        engine = KV_GROUPS.shape(rng, engine)
    policy: Literal["recompute", "fail"] = "recompute" if rng.random() < 0.75 else "fail"
    connector = Connector(
        role=rng.choice(ROLES), failure_policy=policy, single_group=rng.random() < 0.1,
        restores_state=rng.random() < (0.6 if engine.groups else 0.4),
    )  # fmt: skip
    return replace(engine, connector=connector)


def _on(engine: Engine) -> bool:
    return engine.connector is not None and engine.connector.kind == "scripted"


def loaded_tokens(rng: Random, engine: Engine, length: int) -> int:
    """Return how much of a prompt the remote side holds: all, whole blocks, or nearly."""
    size = engine.block_size
    whole = length // size * size
    return rng.choice((length, length, length - 1, whole, whole, whole - size, whole + 1, size, 1))


def script(rng: Random, engine: Engine, request: Request) -> External:
    """Return a random script for a request's prompt."""
    length = request.prompt.length
    failed: tuple[int, ...] = ()
    if rng.random() < 0.15:
        most = blocks_for(length, engine.block_size) - 1
        failed = tuple(sorted({rng.choice((0, most, rng.randint(0, most))) for _ in range(2)}))
    return External(
        tokens=loaded_tokens(rng, engine, length) if rng.random() < 0.85 else 0,
        load_async=rng.random() < 0.75,
        asks_later=rng.choice((0, 0, 0, 0, 1, 2, 4, 8)),
        steps=rng.choice(STEPS),
        failed_blocks=failed,
        fails=rng.random() < 0.06,
        once=rng.random() < 0.4,
        send_steps=rng.choice((0, 0, 1, 2, 4, 8)),
    )


def _dress(rng: Random, engine: Engine, request: Request) -> Request:
    if request.external is not None or rng.random() < 0.4:
        return request
    return replace(request, external=script(rng, engine, request))


# -- edits -----------------------------------------------------------------------------------------


def change_script(draft: Draft, rng: Random) -> None:
    """Write a request's script anew, take it away, or change one of its moments."""
    index, request = draft.pick(rng)
    old, roll = request.external, rng.random()
    if old is None or roll < 0.2:
        new: External | None = script(rng, draft.engine, request)
    elif roll < 0.3:
        new = None
    else:
        new = replace(old, **{name: value(rng, draft.engine, request) for name, value in (
            rng.choice(_CHANGES),)})  # fmt: skip
    draft.requests[index] = replace(request, external=new)


_CHANGES = (
    ("tokens", lambda rng, engine, request: loaded_tokens(rng, engine, request.prompt.length)),
    ("tokens", lambda rng, engine, request: request.external.tokens + rng.choice((-1, 1))),
    ("load_async", lambda rng, engine, request: not request.external.load_async),
    ("steps", lambda rng, engine, request: max(0, request.external.steps + rng.choice((-1, 1)))),
    ("steps", lambda rng, engine, request: rng.choice(STEPS)),
    ("asks_later", lambda rng, engine, request: rng.choice((0, 1, 2, 4, 8))),
    ("send_steps", lambda rng, engine, request: rng.choice((0, 1, 2, 4, 8))),
    ("failed_blocks", lambda rng, engine, request: rng.choice(((), (0,), (1,), (0, 1)))),
    ("once", lambda rng, engine, request: not request.external.once),
)


def change_connector(draft: Draft, rng: Random) -> None:
    """Give the connector another role or policy."""
    draft.engine = _shape(rng, draft.engine)


KV_CONNECTOR = Dimension(
    "KV connector", 8, _shape, _on, _dress, CONNECTOR_MOTIFS,
    (change_script, change_script, change_script, change_connector),
)  # fmt: skip
