"""Nouns: retelling, accepted drafts.

What a trace says in words and in figures that do not depend on our token function.
"""

import msgspec

from schedfuzz.corpus.events import (
    Abort,
    Event,
    Pause,
    ResetPrefixCache,
    Resume,
    ThrottlePrefills,
)
from schedfuzz.corpus.order import DEFAULTS
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace


def accepted_drafts(scenario: Scenario, trace: Trace) -> dict[str, dict[int, int]]:
    """Return, per request id and newest position, how many drafts were accepted (0 left out)."""
    known = {request.id: request.prompt.length for request in scenario.requests}
    found: dict[str, dict[int, int]] = {}
    resumed: set[int] = set()
    for step in trace.steps:
        for share in step.scheduled:
            if share.path == "resumed":
                resumed.add(share.request)
            if not share.sampled:
                continue
            if share.request in resumed:  # what was in flight when it was preempted is lost
                resumed.discard(share.request)
                known[share.request] = share.start + share.tokens - share.drafts
            if share.sampled > 1:
                per = found.setdefault(str(share.request), {})
                per[known[share.request] - 1] = share.sampled - 1
            known[share.request] += share.sampled
    return found


# What the pytest template can express; any other field must be at its default.
TOLD_ENGINE = {
    "max_model_len", "num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens",
    "long_prefill_token_threshold", "chunked_prefill", "prefix_caching", "policy",
    "async_scheduling", "num_speculative_tokens",
}  # fmt: skip
TOLD_REQUEST = {"id", "prompt", "max_tokens", "arrival", "priority", "accept"}


def beyond_the_template(scenario: Scenario) -> str:
    """Return the first field or event that a pytest file cannot express yet, "" for none."""
    for struct, told in [
        (scenario.engine, TOLD_ENGINE),
        *((request, TOLD_REQUEST) for request in scenario.requests),
    ]:
        for field in msgspec.structs.fields(type(struct)):
            if field.name not in told and getattr(struct, field.name) != field.default:
                return field.name
    for event in scenario.events:
        if not isinstance(event, Abort | ResetPrefixCache):
            return f"the event {type(event).__struct_config__.tag}"
    return ""


# engine field -> how it is said when it is not at its default
SETTINGS = {
    "max_num_seqs": "max_num_seqs {}",
    "max_num_batched_tokens": "max_num_batched_tokens {}",
    "long_prefill_token_threshold": "long_prefill_token_threshold {}",
    "chunked_prefill": "chunked prefill off",
    "prefix_caching": "prefix caching off",
    "policy": "{} policy",
    "num_speculative_tokens": "num_speculative_tokens {}",
}


def retell(scenario: Scenario, trace: Trace) -> str:
    """Return a paragraph: the engine, what arrives when, and where the rule breaks."""
    engine = scenario.engine
    mode = "Asynchronous" if engine.async_scheduling else "Synchronous"
    settings = [
        f"{mode} scheduling",
        f"max_model_len {engine.max_model_len}",
        f"{engine.num_blocks} blocks of {count(engine.block_size, 'token')}",
    ]
    settings += [
        text.format(getattr(engine, name))
        for name, text in SETTINGS.items()
        if getattr(engine, name) != getattr(DEFAULTS, name)
    ]
    parts = [", ".join(settings) + ". "]
    for request in sorted(scenario.requests, key=lambda r: (r.arrival, r.id)):
        parts.append(
            f"Request {request.id} ({count(request.prompt.length, 'prompt token')}, "
            f"max_tokens {request.max_tokens}) arrives before step {request.arrival}. "
        )
    parts.extend(map(_happening, scenario.events))
    if trace.violations:
        violation = trace.violations[0]
        who = "" if violation.request is None else f", on request {violation.request}"
        parts.append(f"It goes wrong in step {violation.step}{who}.")
    return "".join(parts)


def _happening(event: Event) -> str:
    match event:
        case Abort():
            return f"Request {event.request} is aborted at step {event.step}. "
        case ResetPrefixCache():
            how = " and running requests are preempted" if event.preempt_running else ""
            return f"The prefix cache is reset before step {event.step}{how}. "
        case Pause():
            how = " and the caches are cleared" if event.clear_cache else ""
            fate = "kept" if event.mode == "keep" else "aborted"
            return f"The scheduler is paused before step {event.step}, requests are {fate}{how}. "
        case Resume():
            return f"The scheduler is resumed before step {event.step}. "
        case ThrottlePrefills():
            length = count(event.steps, "step")
            return f"Prefills are held back for {length} from step {event.step} on. "


def count(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless it is one."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
