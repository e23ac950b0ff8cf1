"""Nouns: the dimensions of clients: sessions, stops, logprobs, pauses, throttling, pooling.

All but pooling are nothing of an engine: a story's requests and events have them.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.scenario import Engine
from schedfuzz.fuzzer.dimensions import asks, pauses, sessions
from schedfuzz.fuzzer.dimensions.dimension import Dimension, never, unshaped
from schedfuzz.fuzzer.dimensions.session_motifs import SESSION_MOTIFS


def _pooling(rng: Random, engine: Engine) -> Engine:
    return replace(engine, model="pooling")


CLIENTS: tuple[Dimension, ...] = (
    Dimension(
        "sessions", 4, unshaped, never, sessions.dress_sessions, SESSION_MOTIFS,
        (sessions.change_turn, sessions.change_turn, sessions.add_turn, sessions.drop_turn),
        sessions.has_sessions,
    ),
    Dimension(
        "stops", 2, unshaped, never, asks.dress_stops,
        (asks.least_at_the_limit, asks.stopped_drafts), (asks.change_stop,), asks.has_stops,
    ),
    Dimension(
        "logprobs", 2, unshaped, never, asks.dress_logprobs, (asks.told_in_chunks,),
        (asks.change_logprobs,), asks.has_logprobs,
    ),
    Dimension(
        "pauses", 2, unshaped, never, motifs=(pauses.paused,), edits=(pauses.add_pause,),
        told=pauses.has_pauses,
    ),
    Dimension(
        "throttled prefills", 1, unshaped, never, motifs=(pauses.throttled,),
        edits=(pauses.add_throttle,), told=pauses.has_throttles,
    ),
    Dimension("pooling", 1, _pooling, lambda engine: engine.model == "pooling"),
)  # fmt: skip
