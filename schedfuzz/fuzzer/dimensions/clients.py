"""Nouns: the dimensions of clients: sessions, stops, logprobs, sampling, pauses, pooling.

All but pooling are nothing of an engine: a story's requests and events have them.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.scenario import Engine
from schedfuzz.fuzzer.dimensions.asks import (
    change_logprobs,
    change_stop,
    dress_logprobs,
    dress_stops,
    has_logprobs,
    has_stops,
    least_at_the_limit,
    stopped_drafts,
    told_in_chunks,
)
from schedfuzz.fuzzer.dimensions.dimension import Dimension, never, unshaped
from schedfuzz.fuzzer.dimensions.pauses import (
    add_pause,
    add_throttle,
    has_pauses,
    has_throttles,
    paused,
    throttled,
)
from schedfuzz.fuzzer.dimensions.sampling import (
    change_wishes,
    dress_wishes,
    exchange_wishes,
    has_wishes,
    tenants,
)
from schedfuzz.fuzzer.dimensions.session_motifs import SESSION_MOTIFS
from schedfuzz.fuzzer.dimensions.sessions import (
    add_turn,
    change_turn,
    dress_sessions,
    drop_turn,
    has_sessions,
)


def _pooling(rng: Random, engine: Engine) -> Engine:
    return replace(engine, model="pooling")


CLIENTS: tuple[Dimension, ...] = (
    Dimension(
        "sessions", 4, unshaped, never, dress_sessions, SESSION_MOTIFS,
        (change_turn, change_turn, add_turn, drop_turn),
        has_sessions,
    ),
    Dimension(
        "stops", 2, unshaped, never, dress_stops,
        (least_at_the_limit, stopped_drafts), (change_stop,), has_stops,
    ),
    Dimension(
        "logprobs", 2, unshaped, never, dress_logprobs, (told_in_chunks,),
        (change_logprobs,), has_logprobs,
    ),
    Dimension(
        "sampling", 2, unshaped, never, dress_wishes, (tenants,),
        (change_wishes, exchange_wishes), has_wishes,
    ),
    Dimension(
        "pauses", 2, unshaped, never, motifs=(paused,), edits=(add_pause,),
        told=has_pauses,
    ),
    Dimension(
        "throttled prefills", 1, unshaped, never, motifs=(throttled,),
        edits=(add_throttle,), told=has_throttles,
    ),
    Dimension("pooling", 1, _pooling, lambda engine: engine.model == "pooling"),
)  # fmt: skip
