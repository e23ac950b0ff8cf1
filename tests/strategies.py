"""Nouns: strategies for valid scenarios, and for well-typed ones that break the rules.

The valid ones are built from the rules themselves, not through repair, so that repair and the
validator are tested against something independent.
"""

from hypothesis import strategies as st

from schedfuzz.corpus.events import Abort, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.sizing import blocks_for, least_token_budget
from schedfuzz.corpus.validate import BLOCK_SIZES, MAX_STEP, validate

WHATEVER = st.integers(-(10**6), 10**6) | st.integers(-3, 40)
times = st.integers(0, 30) | st.integers(0, MAX_STEP)


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    limit = draw(st.integers(4, 140) | st.integers(4, 4096))
    size = draw(st.sampled_from(BLOCK_SIZES))
    shape = Engine(
        max_model_len=limit,
        num_blocks=draw(st.integers(max(2, blocks_for(limit, size)), 4096)),
        block_size=size,
        max_num_seqs=draw(st.integers(1, 64)),
        long_prefill_token_threshold=draw(st.integers(0, limit)),
        chunked_prefill=draw(st.booleans()),
        prefix_caching=draw(st.booleans()),
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        async_scheduling=draw(st.booleans()),
        num_speculative_tokens=draw(st.integers(0, 8)),
    )
    budget = draw(st.integers(least_token_budget(shape), 8192))
    fields = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return Engine(**{**fields, "max_num_batched_tokens": budget})


@st.composite
def requests(draw: st.DrawFn, engine: Engine, number: int) -> Request:
    length = draw(st.integers(1, engine.max_model_len - 1))
    shared = draw(st.none() | st.integers(0, length))
    return Request(
        id=number,
        prompt=Prompt(length, draw(st.integers(0, 5) | st.integers(0, 1000)), shared),
        max_tokens=draw(st.integers(1, engine.max_model_len)),
        arrival=draw(times),
        priority=draw(st.integers(-100, 100)),
        accept=tuple(draw(st.lists(st.integers(0, 8), min_size=1, max_size=16))),
    )


@st.composite
def scenarios(draw: st.DrawFn, most: int = 8) -> Scenario:
    """Any valid scenario in canonical order, with up to `most` requests and 6 events."""
    engine = draw(engines())
    ids = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=most, unique=True))
    story = tuple(draw(requests(engine, number)) for number in ids)
    aborts = st.builds(Abort, times, st.sampled_from(ids), st.booleans())
    resets = st.builds(ResetPrefixCache, times, st.booleans())
    events = draw(st.lists(aborts | resets, max_size=6))
    return validate(Scenario(engine, story, tuple(events)))


def _wild_engines() -> st.SearchStrategy[Engine]:
    switches = (st.booleans(), st.booleans(), st.sampled_from(("fcfs", "priority")), st.booleans())
    return st.builds(
        lambda numbers, switch, width: Engine(
            numbers[0], numbers[1], numbers[2], "autoregressive", *numbers[3:], *switch, width
        ),
        st.tuples(*[WHATEVER] * 6),
        st.tuples(*switches),
        WHATEVER,
    )


def _wild_requests() -> st.SearchStrategy[Request]:
    accept = st.lists(WHATEVER, max_size=20).map(tuple)
    prompts = st.builds(Prompt, WHATEVER, WHATEVER, st.none() | WHATEVER)
    return st.builds(Request, WHATEVER, prompts, WHATEVER, WHATEVER, WHATEVER, accept)


def wild_scenarios() -> st.SearchStrategy[Scenario]:
    """Well-typed scenarios that keep no rule: any numbers, doubled ids, unknown requests."""
    events = st.builds(Abort, WHATEVER, WHATEVER, st.booleans()) | st.builds(
        ResetPrefixCache, WHATEVER, st.booleans()
    )
    return st.builds(
        Scenario,
        _wild_engines(),
        st.lists(_wild_requests(), max_size=70).map(tuple),
        st.lists(events, max_size=70).map(tuple),
        WHATEVER,
    )
