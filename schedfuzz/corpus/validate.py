"""Nouns: the bounds of every field, and who checks them.

A valid scenario is one that a user could really send to a real engine: whatever it does to a
correct release is the release's fault, never the scenario's. Relations between fields stand in
`relations` and `request_relations`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.relations import RELATIONS
from schedfuzz.corpus.request_relations import REQUEST_RELATIONS
from schedfuzz.corpus.scenario import NO_ACCEPT, Engine, Request, Scenario

MAX_REQUESTS = 64
MAX_EVENTS = 64
MAX_STEP = 2000
MAX_ACCEPT = 16  # entries of a pattern
MAX_ACCEPTED = 8
MAX_ID = 10_000
MAX_FAMILY = 1000
MAX_PRIORITY = 100
MAX_LEN = 4096
MAX_PARTS = 16  # images, turns, failed blocks, widths of one owner
BLOCK_SIZES = (8, 16, 32, 64, 128)

Bounds = dict[str, tuple[int, int]]
# field -> (least, most); lengths in tokens, pools in blocks, times in engine steps
ENGINE_BOUNDS: Bounds = {
    "max_model_len": (4, MAX_LEN),
    "num_blocks": (2, 4096),
    "block_size": (8, 128),
    "max_num_seqs": (1, 64),
    "max_num_batched_tokens": (1, 8192),
    "long_prefill_token_threshold": (0, MAX_LEN),
    "num_speculative_tokens": (0, 8),
    "pipeline_parallel_size": (1, 4),
    "canvas_length": (0, 32),
    "prefix_match_unit": (0, 128),
    "watermark_percent": (0, 50),
    "max_num_scheduled_tokens": (0, 8192),
    "prefill_schedule_interval": (1, 8),
    "encoder_cache_size": (0, MAX_LEN),
    "max_num_encoder_input_tokens": (0, MAX_LEN),
    "max_loras": (0, 4),
    "prefix_cache_retention_interval": (0, MAX_LEN),
    "prefill_checkpoint_alignment": (0, 64),
    "max_num_active_seqs": (0, 64),
}
# max_tokens is bounded by max_model_len too
REQUEST_BOUNDS: Bounds = {
    "id": (0, MAX_ID),
    "arrival": (0, MAX_STEP),
    "priority": (-MAX_PRIORITY, MAX_PRIORITY),
    "min_tokens": (0, MAX_LEN),
    "stop_at": (0, MAX_LEN),
    "denoise": (1, 8),
    "canvas": (0, 32),
    "max_steps": (0, 8),
    "lora": (0, 8),
}
PART_BOUNDS: dict[str, Bounds] = {
    "Group": {"window": (0, MAX_LEN)},
    "Connector": {"offload_blocks": (0, 4096), "store_steps": (0, 64), "load_steps": (0, 64)},
    "External": {
        "tokens": (0, MAX_LEN), "asks_later": (0, 8), "steps": (0, 64), "send_steps": (0, 64),
        "failed_blocks": (0, 512),
    },
    "Image": {
        "offset": (0, MAX_LEN), "length": (1, MAX_LEN), "item": (0, MAX_FAMILY), "delay": (0, 64),
        "name": (0, MAX_FAMILY),
    },
    "Sampling": {
        "allowed": (0, MAX_FAMILY), "bad_words": (0, MAX_FAMILY), "presence_penalty": (0, 2),
        "frequency_penalty": (0, 2), "repetition_penalty": (1, 2),
    },
    "Structured": {
        "compile_steps": (0, 64), "ends_after": (0, MAX_LEN), "reasoning_end": (0, MAX_LEN),
    },
    "Turn": {
        "step": (0, MAX_STEP), "length": (0, MAX_LEN), "max_tokens": (1, MAX_LEN),
        "stop_at": (0, MAX_LEN),
    },
    "Repetition": {
        "start": (0, MAX_LEN), "period": (1, 64), "max_pattern_size": (1, 64),
        "min_count": (2, 64), "min_pattern_size": (0, 64),
    },
}  # fmt: skip
EVENT_BOUNDS: Bounds = {"step": (0, MAX_STEP), "steps": (1, 64)}


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


def event_order(event: Event) -> tuple[Any, ...]:
    """Return the sort key of an event: its step, then its content."""
    kind = type(event).__struct_config__.tag
    fields = [str(value) for name, value in msgspec.structs.asdict(event).items() if name != "step"]
    number = event.request if isinstance(event, Abort) else 0
    return (event.step, kind, number, fields)


class _Checker:
    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, field: str, value: object, cure: str) -> None:
        raise InputError(f"{self.source}: {field} = {_shown(value)}: {cure}")

    def between(self, field: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            self.fail(field, value, f"must be between {least} and {most}")

    def bounds(self, at: str, part: msgspec.Struct, bounds: Bounds) -> None:
        """Check the named fields of a struct: numbers, optional ones and tuples of them."""
        for name, (least, most) in bounds.items():
            value = getattr(part, name, None)
            if isinstance(value, tuple):
                self.between(f"{at}.{name} (length)", len(value), 0, MAX_PARTS)
                for entry in value:
                    self.between(f"{at}.{name}", entry, least, most)
            elif value is not None:
                self.between(f"{at}.{name}", value, least, most)

    def parts(self, at: str, owner: Engine | Request) -> None:
        """Check the parts that an engine or a request may have."""
        for name in owner.__struct_fields__:
            value = getattr(owner, name)
            several = value if isinstance(value, tuple) else (value,)
            if isinstance(value, tuple):
                self.between(f"{at}.{name} (length)", len(value), 0, MAX_PARTS)
            for index, part in enumerate(several):
                bounds = PART_BOUNDS.get(type(part).__name__)
                if bounds is not None:
                    where = f"[{index}]" if isinstance(value, tuple) else ""
                    self.bounds(f"{at}.{name}{where}", part, bounds)

    def engine(self, engine: Engine) -> None:
        self.bounds("engine", engine, ENGINE_BOUNDS)
        if engine.block_size not in BLOCK_SIZES:
            self.fail("engine.block_size", engine.block_size, f"must be one of {BLOCK_SIZES}")
        self.parts("engine", engine)
        for relation in RELATIONS:
            if not relation.holds(engine):
                field = relation.field
                fit = relation.changes(engine).get(field)
                cure = f"{relation.cure}; write {_shown(fit)}, for example"
                self.fail(f"engine.{field}", getattr(engine, field), cure)

    def requests(self, engine: Engine, requests: Iterable[Request]) -> None:
        requests = tuple(requests)
        self.between("requests (count)", len(requests), 1, MAX_REQUESTS)
        seen: set[int] = set()
        for index, request in enumerate(requests):
            at = f"requests[{index}]"
            self.bounds(at, request, REQUEST_BOUNDS)
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
        self.between(f"{at}.accept (length)", len(request.accept), 1, MAX_ACCEPT)
        for value in (*request.accept, *request.proposals):
            self.between(f"{at}.accept", value, 0, MAX_ACCEPTED)
        self.parts(at, request)
        for relation in REQUEST_RELATIONS:
            if not relation.holds(engine, request):
                field = relation.field
                self.fail(f"{at}.{field}", getattr(request, field), relation.cure)

    def events(self, requests: Iterable[Request], events: tuple[Event, ...]) -> None:
        self.between("events (count)", len(events), 0, MAX_EVENTS)
        ids = {request.id for request in requests}
        for index, event in enumerate(events):
            self.bounds(f"events[{index}]", event, EVENT_BOUNDS)
            if isinstance(event, Abort) and event.request not in ids:
                self.fail(f"events[{index}].request", event.request, "no request has this id")


def _shown(value: object) -> str:
    if isinstance(value, int | float | str | type(None)):
        return str(value)
    return msgspec.json.encode(value).decode()
