"""Nouns: the table of dimensions: what a scheduler does beyond plain requests."""

from collections.abc import Iterable, Sequence
from random import Random

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.dimensions.clients import CLIENTS
from schedfuzz.fuzzer.dimensions.connector import KV_CONNECTOR
from schedfuzz.fuzzer.dimensions.diffusion import DIFFUSION
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.dimensions.drafters import DRAFTERS
from schedfuzz.fuzzer.dimensions.encoders import EC_CONNECTOR, ENCODER_DECODER
from schedfuzz.fuzzer.dimensions.groups import KV_GROUPS
from schedfuzz.fuzzer.dimensions.images import IMAGES
from schedfuzz.fuzzer.dimensions.loops import LOOPS
from schedfuzz.fuzzer.dimensions.lora import LORA
from schedfuzz.fuzzer.dimensions.offloading import OFFLOADING
from schedfuzz.fuzzer.dimensions.options import OPTIONS, V2_RUNNER
from schedfuzz.fuzzer.dimensions.rivals import RIVALS
from schedfuzz.fuzzer.dimensions.structured import STRUCTURED
from schedfuzz.fuzzer.edges import Motif

DIMENSIONS: tuple[Dimension, ...] = (
    *OPTIONS,
    V2_RUNNER,
    *DRAFTERS,
    RIVALS,
    KV_GROUPS,
    KV_CONNECTOR,
    OFFLOADING,
    STRUCTURED,
    *CLIENTS,
    LOOPS,
    IMAGES,
    EC_CONNECTOR,
    ENCODER_DECODER,
    LORA,
    DIFFUSION,
)


def active(
    engine: Engine, requests: Sequence[Request] = (), events: Sequence[Event] = ()
) -> list[Dimension]:
    """Return the dimensions that an engine has on, and those that a story shows."""
    return [
        dimension
        for dimension in DIMENSIONS
        if dimension.on(engine) or dimension.told(requests, events)
    ]


def choose(rng: Random, among: Sequence[Dimension] = DIMENSIONS) -> Dimension:
    """Return one of some dimensions by weight."""
    return rng.choices(among, [dimension.weight for dimension in among])[0]


def dress(rng: Random, on: Iterable[Dimension], engine: Engine, request: Request) -> Request:
    """Return the request with its share of the dimensions that are on."""
    for dimension in on:
        request = dimension.dress(rng, engine, request)
    return request


def motifs(on: Iterable[Dimension]) -> list[Motif]:
    """Return the stories that dimensions bring along."""
    return [motif for dimension in on for motif in dimension.motifs]
