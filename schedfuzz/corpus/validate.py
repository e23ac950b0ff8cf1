"""Nouns: the bounds of every field, and the relations between fields.

A valid scenario is one that a user could really send to a real engine: whatever it does to a
correct release is the release's fault, never the scenario's.
"""

from collections.abc import Iterable

import msgspec

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import NO_ACCEPT, Abort, Engine, Event, Request, Scenario

# field -> (least, most); lengths in tokens, pools in blocks, times in engine steps
ENGINE_BOUNDS = {
    "max_model_len": (4, 4096),
    "num_blocks": (2, 4096),
    "block_size": (1, 256),
    "max_num_seqs": (1, 64),
    "max_num_batched_tokens": (1, 8192),
    "long_prefill_token_threshold": (0, 4096),
    "num_speculative_tokens": (0, 8),
}
MAX_REQUESTS = 64
MAX_EVENTS = 64
MAX_STEP = 2000
MAX_ACCEPT = 16  # entries of a pattern
MAX_ACCEPTED = 8
MAX_ID = 10_000
MAX_FAMILY = 1000
MAX_PRIORITY = 100
BLOCK_SIZES = (8, 16, 32, 64, 128)


def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks hold `tokens` tokens."""
    return -(-tokens // block_size)


def validate(scenario: Scenario, source: str = "scenario") -> Scenario:
    """Return the scenario in canonical order. Raises InputError with field, value and cure."""
    check = _Checker(source)
    check.engine(scenario.engine)
    check.requests(scenario.engine, scenario.requests)
    check.events(scenario.requests, scenario.events)
    return msgspec.structs.replace(
        scenario,
        requests=tuple(sorted(map(_canonical, scenario.requests), key=lambda r: r.id)),
        events=tuple(sorted(scenario.events, key=event_order)),
    )


def _canonical(request: Request) -> Request:
    """Return the request with the default `accept` object: msgspec omits a default by identity."""
    same = request.accept == NO_ACCEPT and request.accept is not NO_ACCEPT
    return msgspec.structs.replace(request, accept=NO_ACCEPT) if same else request


def event_order(event: Event) -> tuple[int, str, int, bool]:
    """Return the sort key of an event: its step, then its content."""
    if isinstance(event, Abort):
        return (event.step, "abort", event.request, event.in_flight)
    return (event.step, "reset_prefix_cache", 0, event.preempt_running)


class _Checker:
    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, field: str, value: object, cure: str) -> None:
        raise InputError(f"{self.source}: {field} = {value}: {cure}")

    def between(self, field: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            self.fail(field, value, f"must be between {least} and {most}")

    def engine(self, engine: Engine) -> None:
        for name, (least, most) in ENGINE_BOUNDS.items():
            self.between(f"engine.{name}", getattr(engine, name), least, most)
        if engine.block_size not in BLOCK_SIZES:
            self.fail("engine.block_size", engine.block_size, f"must be one of {BLOCK_SIZES}")
        fit = blocks_for(engine.max_model_len, engine.block_size)
        if engine.num_blocks < fit:
            self.fail(
                "engine.num_blocks", engine.num_blocks,
                f"one request of max_model_len {engine.max_model_len} needs at least {fit}",
            )  # fmt: skip
        least = least_token_budget(engine)
        if engine.max_num_batched_tokens < least:
            self.fail(
                "engine.max_num_batched_tokens", engine.max_num_batched_tokens,
                f"must be at least {least} for max_num_seqs, num_speculative_tokens and "
                "chunked_prefill as given",
            )  # fmt: skip
        if engine.long_prefill_token_threshold > engine.max_model_len:
            self.fail(
                "engine.long_prefill_token_threshold", engine.long_prefill_token_threshold,
                f"must not exceed max_model_len {engine.max_model_len}",
            )  # fmt: skip

    def requests(self, engine: Engine, requests: Iterable[Request]) -> None:
        requests = tuple(requests)
        self.between("requests (count)", len(requests), 1, MAX_REQUESTS)
        seen: set[int] = set()
        for index, request in enumerate(requests):
            at = f"requests[{index}]"
            self.between(f"{at}.id", request.id, 0, MAX_ID)
            if request.id in seen:
                self.fail(f"{at}.id", request.id, "ids must be unique")
            seen.add(request.id)
            self.request(at, engine, request)

    def request(self, at: str, engine: Engine, request: Request) -> None:
        prompt = request.prompt
        # vLLM's own input check: a prompt must leave room for one output token.
        self.between(f"{at}.prompt.length", prompt.length, 1, engine.max_model_len - 1)
        self.between(f"{at}.prompt.family", prompt.family, 0, MAX_FAMILY)
        if prompt.shared is not None:
            self.between(f"{at}.prompt.shared", prompt.shared, 0, prompt.length)
        self.between(f"{at}.max_tokens", request.max_tokens, 1, engine.max_model_len)
        self.between(f"{at}.arrival", request.arrival, 0, MAX_STEP)
        self.between(f"{at}.priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY)
        self.between(f"{at}.accept (length)", len(request.accept), 1, MAX_ACCEPT)
        for value in request.accept:
            self.between(f"{at}.accept", value, 0, MAX_ACCEPTED)

    def events(self, requests: Iterable[Request], events: tuple[Event, ...]) -> None:
        self.between("events (count)", len(events), 0, MAX_EVENTS)
        ids = {request.id for request in requests}
        for index, event in enumerate(events):
            self.between(f"events[{index}].step", event.step, 0, MAX_STEP)
            if isinstance(event, Abort) and event.request not in ids:
                self.fail(f"events[{index}].request", event.request, "no request has this id")


def least_token_budget(engine: Engine) -> int:
    """Return the smallest `max_num_batched_tokens` that vLLM accepts for this engine.

    Source: `SchedulerConfig.verify_max_model_len` and `VllmConfig._set_max_num_scheduled_tokens`:
    a token a seat, a whole prompt without chunked prefill, room for a verified draft window.
    """
    least = max(engine.max_num_seqs, engine.num_speculative_tokens + 2)
    return least if engine.chunked_prefill else max(least, engine.max_model_len)
