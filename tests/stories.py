"""Nouns: correct stories.

Scheduler outputs as a correct V1 scheduler sends them, sync and async. A story is a generator, so
that it can look at the runner's proposals between two steps.
"""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

from msgspec.structs import replace
from outputs import cached, new, output

from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.tokens import continuation, prompt_tokens
from schedfuzz.workers.target.runner import SimulatedRunner

SYNC = Engine(32, 12, block_size=8, max_num_seqs=2, max_num_batched_tokens=16)
DRAFTS = replace(SYNC, num_speculative_tokens=2, spec_method="eagle")
ASYNC = replace(SYNC, async_scheduling=True)
ASYNC_DRAFTS = replace(DRAFTS, async_scheduling=True)
A = Request(0, Prompt(5), 8)
B = Request(1, Prompt(20, family=1), 8)
TWIN = Request(2, Prompt(20, family=1, shared=17), 8)  # two whole blocks in common with B
LONG = Request(3, Prompt(29, family=3), 8)
RIGHT = Request(4, Prompt(5), 8, accept=(2,))  # every draft is right
HALF = Request(5, Prompt(5), 8, accept=(1,))  # the first draft is right, the second wrong
WRONG = Request(6, Prompt(5), 8)
NEAR = Request(7, Prompt(29, family=3), 8, accept=(2,))
REQUESTS = (A, B, TWIN, LONG, RIGHT, HALF, WRONG, NEAR)
PLACEHOLDERS = [-1, -1]

Story = Callable[[SimulatedRunner], Iterator[SimpleNamespace]]


def known(request: Request, outputs: int) -> list[int]:
    """Return the prompt and the first output tokens of a request."""
    prompt = prompt_tokens(request)
    return prompt + continuation(prompt, outputs)


def whole_prefill_and_decode(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    for outputs in range(1, 6):
        more = [2] if outputs == 4 else None
        yield output({0: 1}, cached(A, 4 + outputs, outputs, more))
    yield output({}, finished=(0,))


def chunked_prefill_beside_a_decode(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5, 1: 11}, new(A, [1]), new(B, [2, 3]))
    yield output({0: 1, 1: 8}, cached(A, 5, 1), cached(B, 11, 0, [4]))
    yield output({0: 1, 1: 1}, cached(A, 6, 2), cached(B, 19, 0))
    yield output({1: 1}, cached(B, 20, 1), finished=(0,))


def prefix_hit_in_the_same_step(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({1: 8}, new(B, [1]))
    yield output({1: 8, 2: 4}, cached(B, 8, 0, [2]), new(TWIN, [1, 2, 3], 16))
    yield output({1: 4, 2: 1}, cached(B, 16, 0, [4]), cached(TWIN, 20, 1))


def drafts(request: Request, accepted: int) -> Story:
    """Return a sync story of two verifications with this many accepted drafts each."""

    def story(runner: SimulatedRunner) -> Iterator[SimpleNamespace]:
        number = request.id
        yield output({number: 5}, new(request, [1]))
        outputs = 1
        for _ in range(2):
            ids, proposed = runner.proposals()
            assert ids == [str(number)] and len(proposed[0]) == 2
            share = cached(request, 4 + outputs, outputs, [2] if outputs == 1 else None)
            yield output({number: 3}, share, drafts={number: proposed[0]})
            outputs += 1 + accepted
            assert runner.states[str(number)].known == 5 + outputs
        yield output({number: 1}, cached(request, 4 + outputs, outputs))

    return story


def resumed_after_preemption(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5, 1: 11}, new(A, [1]), new(B, [2, 3]))
    yield output({0: 1}, cached(A, 5, 1))
    yield output({1: 9}, cached(B, 11, 0, [4]))
    yield output({0: 7, 1: 1}, cached(A, 0, 2, [5], resumed=True), cached(B, 20, 1))
    yield output({0: 1, 1: 1}, cached(A, 7, 3), cached(B, 21, 2))


def preempted_and_resumed_in_one_step(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    yield output({0: 6}, cached(A, 0, 1, [4], resumed=True))
    yield output({0: 1}, cached(A, 6, 2))


def async_placeholders(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    # The scheduler counts a placeholder as an output before it knows the token.
    yield output({1: 16}, new(B, [1, 2]))
    yield output({1: 4, 0: 5}, cached(B, 16, 0, [3]), new(A, [4]))
    yield output({1: 1, 0: 1}, cached(B, 20, 1), cached(A, 5, 1))
    yield output({1: 1, 0: 1}, cached(B, 21, 2), cached(A, 6, 2))


def async_drafts(request: Request, accepted: int) -> Story:
    """Return an async story whose scheduler is optimistic until the rejections reach it."""

    def story(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
        number = request.id
        yield output({number: 5}, new(request, [1]))
        fields = {"drafts": {number: PLACEHOLDERS}}
        yield output({number: 3}, cached(request, 5, 1, [2]), **fields)
        # Sent before the first verification came back: it hopes for three tokens of it.
        yield output({number: 3}, cached(request, 8, 4), **fields)
        # The first one's rejections are known now, the second one's are not.
        lost = 2 - accepted
        yield output({number: 3}, cached(request, 11 - lost, 7 - lost), **fields)
        yield output({number: 1}, cached(request, 14 - 2 * lost, 10 - 2 * lost))

    return story


def async_re_entry(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5, 1: 11}, new(A, [1]), new(B, [2, 3]))
    yield output({0: 1}, cached(A, 5, 1))
    yield output({1: 9}, cached(B, 11, 0, [4]))
    # A was left out: it re-enters with all its tokens, from its own blocks.
    yield output({0: 1, 1: 1}, cached(A, 6, 2, tokens=known(A, 2)), cached(B, 20, 1))
    yield output({0: 1, 1: 1}, cached(A, 7, 3), cached(B, 21, 2))


def async_resumed_without_its_stale_token(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    yield output({0: 1}, cached(A, 5, 1))
    yield output({1: 11}, new(B, [2, 3]))
    # The second token was in flight when A was preempted, so the scheduler dropped it.
    data = cached(A, 0, 1, [5], resumed=True, tokens=known(A, 1))
    yield output({0: 6, 1: 9}, data, cached(B, 11, 0, [4]))
    yield output({0: 1, 1: 1}, cached(A, 6, 2), cached(B, 20, 1))


def up_to_the_limit(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({3: 16}, new(LONG, [1, 2]))
    yield output({3: 13}, cached(LONG, 16, 0, [3, 4]))
    yield output({3: 1}, cached(LONG, 29, 1))
    yield output({3: 1}, cached(LONG, 30, 2))


def up_to_the_limit_with_a_right_draft(runner: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({7: 16}, new(NEAR, [1, 2]))
    yield output({7: 13}, cached(NEAR, 16, 0, [3, 4]))
    first = continuation(known(NEAR, 1), 1)
    yield output({7: 2}, cached(NEAR, 29, 1), drafts={7: first})


# name -> (engine, story, output tokens per request)
STORIES: dict[str, tuple[Engine, Story, dict[int, int]]] = {
    "whole prefill and decode": (SYNC, whole_prefill_and_decode, {0: 6}),
    "chunked prefill": (SYNC, chunked_prefill_beside_a_decode, {0: 3, 1: 2}),
    "prefix hit": (SYNC, prefix_hit_in_the_same_step, {1: 1, 2: 2}),
    "drafts accepted": (DRAFTS, drafts(RIGHT, 2), {4: 8}),
    "drafts accepted partly": (DRAFTS, drafts(HALF, 1), {5: 6}),
    "drafts rejected": (DRAFTS, drafts(WRONG, 0), {6: 4}),
    "resumed": (SYNC, resumed_after_preemption, {0: 4, 1: 3}),
    "resumed at once": (SYNC, preempted_and_resumed_in_one_step, {0: 3}),
    "async placeholders": (ASYNC, async_placeholders, {0: 3, 1: 3}),
    "async drafts accepted": (ASYNC_DRAFTS, async_drafts(RIGHT, 2), {4: 11}),
    "async drafts accepted partly": (ASYNC_DRAFTS, async_drafts(HALF, 1), {5: 8}),
    "async drafts rejected": (ASYNC_DRAFTS, async_drafts(WRONG, 0), {6: 5}),
    "async re-entry": (ASYNC, async_re_entry, {0: 4, 1: 3}),
    "limit": (SYNC, up_to_the_limit, {3: 3}),
    "limit with a right draft": (DRAFTS, up_to_the_limit_with_a_right_draft, {7: 3}),
}
