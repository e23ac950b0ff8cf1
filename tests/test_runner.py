"""The simulated runner on hand-made scheduler outputs: correct stories, and each rule broken.

A story is correct as it stands; a case changes one decision of its last output. Playing it both
ways shows that the rule breaks by this decision and by nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from outputs import cached, new, output
from stories import (
    ASYNC,
    ASYNC_DRAFTS,
    DRAFTS,
    HALF,
    LONG,
    PLACEHOLDERS,
    REQUESTS,
    RIGHT,
    STORIES,
    SYNC,
    TWIN,
    A,
    B,
    Story,
    async_resumed_without_its_stale_token,
    drafts,
    known,
)  # fmt: skip

from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Engine, Prompt
from schedfuzz.corpus.tokens import continuation, prompt_tokens
from schedfuzz.corpus.trace import Scheduled, Violation
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.runner_v1 import V1Runner as SimulatedRunner


def play(
    engine: Engine, story: Story, change: Callable[[int, SimpleNamespace], None] = lambda *_: None
) -> tuple[SimulatedRunner, dict[int, list[int]], list[Violation]]:
    """Run a story's outputs; return the runner, tokens per request and what broke."""
    runner = SimulatedRunner(engine)
    runner.requests = {str(request.id): request for request in REQUESTS}
    tokens: dict[int, list[int]] = {}
    fatal: list[Violation] = []
    for step, sent in enumerate(story(runner)):
        runner.step = step
        change(step, sent)
        try:
            runner.execute(sent)
            sampled = runner.sample(None)
        except BrokenRule as error:
            fatal.append(error.violation)
            break
        for number, more in sampled.items():
            tokens.setdefault(int(number), []).extend(more)
    return runner, tokens, runner.noted + fatal


@pytest.mark.parametrize("name", STORIES)
def test_a_correct_story_breaks_no_rule_and_yields_the_continuation(name: str) -> None:
    engine, story, counts = STORIES[name]
    _, tokens, broken = play(engine, story)
    assert broken == []
    assert {number: len(sampled) for number, sampled in tokens.items()} == counts
    for number, sampled in tokens.items():
        prompt = prompt_tokens(next(r for r in REQUESTS if r.id == number))
        assert sampled == continuation(prompt, len(sampled))


def test_a_stale_token_is_sampled_again() -> None:
    _, tokens, broken = play(ASYNC, async_resumed_without_its_stale_token)
    want = continuation(prompt_tokens(A), 3)
    assert (broken, tokens[0]) == ([], [*want[:2], want[1], want[2]])


def test_the_records_say_what_was_scheduled() -> None:
    story = drafts(HALF, 1)
    records: list[Scheduled] = []

    def recording(runner: SimulatedRunner) -> Iterator[SimpleNamespace]:
        for sent in story(runner):
            yield sent
            records.extend(runner.records)

    play(DRAFTS, recording)
    assert records == [
        Scheduled(5, "new", 0, 5, 0, 1, 1),
        Scheduled(5, "running", 5, 3, 2, 2, 2),
        Scheduled(5, "running", 7, 3, 2, 2, 2),
        Scheduled(5, "running", 9, 1, 0, 2, 1),
    ]


def test_one_request_too_near_the_limit_has_zeros_proposed_to_all() -> None:
    for length, room in ((30, True), (31, False)):
        late = replace(LONG, prompt=Prompt(length, family=3))
        runner = SimulatedRunner(replace(DRAFTS, max_num_batched_tokens=64))
        runner.requests = {"3": late, "4": RIGHT}
        runner.execute(output({3: length, 4: 5}, new(late, [1, 2, 3, 4]), new(RIGHT, [5])))
        runner.sample(None)
        ids, proposed = runner.proposals()
        assert ids == ["3", "4"]
        assert proposed[1] == (continuation(known(RIGHT, 1), 2) if room else [0, 0])
        assert room or proposed[0] == [0, 0]


# -- each rule broken ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A correct story, and the change to its last output that breaks `rules`."""

    rules: tuple[str, ...]
    engine: Engine
    story: Story
    change: Callable[[SimpleNamespace], None]
    detail: str = ""


def share(number: int, tokens: int) -> Callable[[SimpleNamespace], None]:
    """Schedule a request for another number of tokens."""

    def change(sent: SimpleNamespace) -> None:
        sent.num_scheduled_tokens[str(number)] = tokens
        sent.total_num_scheduled_tokens = sum(sent.num_scheduled_tokens.values())

    return change


def known_data(name: str, value: object) -> Callable[[SimpleNamespace], None]:
    """Send another value of a field of the first known request."""

    def change(sent: SimpleNamespace) -> None:
        getattr(sent.scheduled_cached_reqs, name)[0] = value

    return change


def sent_as(name: str, value: object) -> Callable[[SimpleNamespace], None]:
    """Send another value of a field of the output."""
    return lambda sent: setattr(sent, name, value)


def padded(tokens: list[int]) -> Callable[[SimpleNamespace], None]:
    """Give the first scheduled request these drafts on top of its share."""

    def change(sent: SimpleNamespace) -> None:
        number = next(iter(sent.num_scheduled_tokens))
        sent.scheduled_spec_decode_tokens[number] = tokens
        share(int(number), sent.num_scheduled_tokens[number] + len(tokens))(sent)

    return change


def third_seat(sent: SimpleNamespace) -> None:
    sent.scheduled_new_reqs.append(new(TWIN, [6, 7, 8]))
    share(2, 3)(sent)


def no_data(sent: SimpleNamespace) -> None:
    sent.scheduled_cached_reqs = output({}).scheduled_cached_reqs


def no_tokens(sent: SimpleNamespace) -> None:
    sent.scheduled_cached_reqs.all_token_ids.clear()


def other_tokens(sent: SimpleNamespace) -> None:
    sent.scheduled_cached_reqs.all_token_ids["0"][-2] += 1


def kept_in_mind(sent: SimpleNamespace) -> None:
    """Count as computed what was lost with the preempted request's blocks."""
    known_data("num_computed_tokens", 5)(sent)
    share(0, 1)(sent)


def other_block(sent: SimpleNamespace) -> None:
    sent.scheduled_new_reqs[0].block_ids = ([1, 5, 3],)


def one_prefill(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))


def two_prefills(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5, 1: 8}, new(A, [1]), new(B, [2, 3, 4]))


def one_decode(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1, 2]))
    yield output({0: 1}, cached(A, 5, 1))


def two_decodes(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({1: 8}, new(B, [1]))
    yield output({3: 8}, new(LONG, [3]))
    yield output({1: 8, 3: 8}, cached(B, 8, 0, [2]), cached(LONG, 8, 0, [4]))


def one_resumed(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    yield output({1: 9}, new(B, [2, 3]))
    yield output({0: 6}, cached(A, 0, 1, [4], resumed=True, tokens=known(A, 1)))


def one_re_entry(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    yield output({1: 9}, new(B, [2, 3]))
    yield output({0: 1}, cached(A, 5, 1, tokens=known(A, 1)))


def late_re_entry(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({0: 5}, new(A, [1]))
    yield output({0: 1}, cached(A, 5, 1))
    yield output({1: 9}, new(B, [2, 3]))
    yield output({0: 1}, cached(A, 6, 2, tokens=known(A, 2)))


def one_hit(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({1: 16}, new(B, [1, 2, 4]))
    yield output({2: 4}, new(TWIN, [1, 2, 3], 16))


def one_verification(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({4: 5}, new(RIGHT, [1]))
    first = continuation(known(RIGHT, 1), 2)
    yield output({4: 3}, cached(RIGHT, 5, 1, [2]), drafts={4: first})


def one_async_verification(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({4: 5}, new(RIGHT, [1]))
    yield output({4: 3}, cached(RIGHT, 5, 1, [2]), drafts={4: PLACEHOLDERS})
    yield output({4: 1}, cached(RIGHT, 8, 4))


def last_token(_: SimulatedRunner) -> Iterator[SimpleNamespace]:
    yield output({3: 16}, new(LONG, [1, 2]))
    yield output({3: 13}, cached(LONG, 16, 0, [3, 4, 5]))
    yield output({3: 1}, cached(LONG, 29, 1))
    yield output({3: 1}, cached(LONG, 30, 2))


NEXT = continuation(known(LONG, 2), 1)
CASES = [
    Case(("nonpositive-tokens",), SYNC, two_prefills, share(1, 0), "scheduled for 0 tokens"),
    Case(("nonpositive-tokens",), SYNC, two_prefills, share(1, -1), "scheduled for -1 tokens"),
    Case(("past-max-model-len",), DRAFTS, last_token, padded([(NEXT[0] + 1) % 32]),
         "30 computed + 2 scheduled + 1 sampled > 32 (1 drafts)"),
    # Whoever samples past the limit was scheduled past it.
    Case(("past-max-model-len", "sampled-past-max-model-len"), DRAFTS, last_token, padded(NEXT),
         "31 tokens + 2 sampled > 32"),
    Case(("token-budget",), SYNC, two_prefills, share(1, 12), "17 > 16"),
    Case(("token-total",), SYNC, one_prefill, sent_as("total_num_scheduled_tokens", 6), "5 != 6"),
    Case(("seats",), SYNC, two_prefills, third_seat, "3 > 2"),
    Case(("draft-width",), DRAFTS, one_decode, padded([0, 0, 0]), "with 3 drafts"),
    Case(("unknown-request",), SYNC, one_decode, no_data, "0 was scheduled without its data"),
    Case(("unknown-request",), SYNC, one_decode, sent_as("finished_req_ids", {"0"}),
         "0 was never sent to the runner"),
    Case(("unknown-request",), SYNC, one_prefill, sent_as("scheduled_new_reqs", []),
         "0 was scheduled without its data"),
    Case(("resumed-in-full",), SYNC, one_resumed, known_data("new_block_ids", None),
         "without a block table"),
    Case(("resumed-tokens",), ASYNC, one_resumed, no_tokens, "without its tokens"),
    Case(("resumed-tokens",), ASYNC, one_re_entry, no_tokens, "without its tokens"),
    Case(("unknown-input",), SYNC, one_decode, known_data("num_computed_tokens", 6),
         "to position 7 but has only 6 tokens"),
    Case(("unknown-input",), SYNC, one_decode, share(0, 2), "to position 7 but has only 6 tokens"),
    Case(("misplaced-sample",), DRAFTS, one_verification, known_data("num_computed_tokens", 4),
         "it samples after token 5 of 6"),
    Case(("computed-behind",), ASYNC_DRAFTS, one_async_verification,
         known_data("num_computed_tokens", 7), "7 < 8"),
    Case(("block-table",), SYNC, one_resumed, known_data("new_block_ids", ([],)),
         "0 blocks for 6 tokens, 1 needed"),
    Case(("block-table",), SYNC, one_resumed, known_data("new_block_ids", ([0],)), "null block"),
    Case(("block-table",), SYNC, one_resumed, known_data("new_block_ids", ([12],)), "no block"),
    Case(("block-copy",), SYNC, one_decode, sent_as("kv_cache_block_copies", [(3, 4)]),
         "never written"),
    Case(("block-copy",), SYNC, one_decode, sent_as("kv_cache_block_copies", [(1, 0)]),
         "to no block"),
    Case(("block-copy",), SYNC, one_decode, sent_as("kv_cache_block_copies", [(1, 3), (1, 3)]),
         "takes part in another copy"),
    Case(("common-prefix",), SYNC, two_decodes, sent_as("num_common_prefix_blocks", [1]),
         "1 blocks are said to be common to all"),
    Case(("kv-content",), SYNC, one_decode, sent_as("new_block_ids_to_zero", [1]),
         "position 0 of its context holds nothing"),
    Case(("kv-content",), SYNC, one_hit, other_block, "position 8 of its context holds nothing"),
    Case(("kv-content",), ASYNC, late_re_entry, other_tokens,
         "position 5 of its context holds other content"),
    Case(("kv-content",), SYNC, one_resumed, kept_in_mind,
         "position 0 of its context holds nothing"),
]  # fmt: skip
# Judged by the driver at the end of a run, from what reached the clients (test_target.py).
# What a client got is for the driver to judge: test_clients.
# What only an encoder or adapters bring: test_encoder.
NOT_THE_RUNNERS = {
    "runner-context", "runner-output",  # test_real_faults
    "runner-control",  # test_real_control
    "runner-logprobs",  # test_sampling_real
    "draft-slots", "draft-lookahead",  # test_serving
    "encoder-budget", "encoder-cache", "encoder-missing", "encoder-slots", "encoder-held",
    "ec-freed", "lora-limit",
    "block-zeroed",  # test_groups
    # What only grammars or canvases bring: test_structured, test_diffusion.
    "canvas", "grammar-rows", "grammar", "grammar-state",
    "output", "session-prompt", "turn-length", "finish-reason", "logprobs", "prompt-logprobs",
    "pooled",
    "store-overwritten", "load-announced", "load-blocks", "load-zeroed", "load-into-used-block",
    "load-overwritten", "failed-load-delivered", "handoff-blocks", "handoff-content",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rules[-1]} {case.detail}")
def test_a_rule_breaks_by_one_wrong_decision(case: Case) -> None:
    right, _, violations = play(case.engine, case.story)
    assert violations == []

    def change(step: int, sent: SimpleNamespace) -> None:
        if step == right.step:
            case.change(sent)

    _, _, violations = play(case.engine, case.story, change)
    assert tuple(violation.rule for violation in violations) == case.rules
    last = violations[-1]
    assert (last.kind, last.step) == (RULES[last.rule][0], right.step)
    assert case.detail in last.detail


def test_every_contract_and_corruption_rule_has_a_case() -> None:
    runners = {name for name, (kind, _) in RULES.items() if kind in ("contract", "corruption")}
    assert {rule for case in CASES for rule in case.rules} == runners - NOT_THE_RUNNERS
