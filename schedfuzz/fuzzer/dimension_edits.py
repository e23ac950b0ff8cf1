"""Nouns: edits of dimensions: switch one on, off, or deal its shares anew."""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.order import DEFAULTS, SWITCHES
from schedfuzz.corpus.relations import mend
from schedfuzz.fuzzer.dimensions import Dimension, active, choose, dress
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.repair import repair_engine


def change_dimensions(draft: Draft, rng: Random) -> None:
    """Switch a dimension on and deal its shares, or set a field of the engine back."""
    if rng.random() < 0.7:
        dimension = choose(rng)
        draft.engine = repair_engine(dimension.shape(rng, draft.engine))
        if dimension.motifs and rng.random() < 0.5:
            requests, events = rng.choice(dimension.motifs)(rng, draft.engine, 0, 0)
            draft.insert(requests, events, draft.moment(rng))
        _deal(draft, rng, dimension)
        return
    on = [name for name in SWITCHES if getattr(draft.engine, name) != getattr(DEFAULTS, name)]
    if on:
        name = rng.choice(on)
        draft.engine = mend(replace(draft.engine, **{name: getattr(DEFAULTS, name)}))


def dress_again(draft: Draft, rng: Random) -> None:
    """Deal the dimensions' shares anew to one request or to all."""
    _deal(draft, rng)


def _deal(draft: Draft, rng: Random, *more: Dimension) -> None:
    on = active(draft.engine, draft.requests, draft.events)
    on += [dimension for dimension in more if dimension not in on]
    index, _ = draft.pick(rng)
    everybody = rng.random() < 0.3
    for at, request in enumerate(draft.requests):
        if everybody or at == index:
            draft.requests[at] = dress(rng, on, draft.engine, request)
