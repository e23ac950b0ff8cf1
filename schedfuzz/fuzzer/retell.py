"""Nouns: retelling, accepted drafts.

What a trace says in words and in figures that do not depend on our token function.
"""

from schedfuzz.corpus.scenario import Abort, Scenario
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


def retell(scenario: Scenario, trace: Trace) -> str:
    """Return a paragraph: the engine, what arrives when, and where the rule breaks."""
    engine = scenario.engine
    mode = "Asynchronous" if engine.async_scheduling else "Synchronous"
    parts = [f"{mode} scheduling, max_model_len {engine.max_model_len}, "]
    parts.append(f"{engine.num_blocks} blocks of {engine.block_size} tokens")
    if engine.num_speculative_tokens:
        parts.append(f", {engine.num_speculative_tokens} speculative tokens")
    parts.append(". ")
    for request in sorted(scenario.requests, key=lambda r: (r.arrival, r.id)):
        parts.append(
            f"Request {request.id} ({request.prompt.length} prompt tokens, "
            f"max_tokens {request.max_tokens}) arrives before step {request.arrival}. "
        )
    for event in scenario.events:
        if isinstance(event, Abort):
            parts.append(f"Request {event.request} is aborted at step {event.step}. ")
        else:
            how = " and running requests are preempted" if event.preempt_running else ""
            parts.append(f"The prefix cache is reset before step {event.step}{how}. ")
    if trace.violations:
        violation = trace.violations[0]
        who = "" if violation.request is None else f" on request {violation.request}"
        parts.append(f"The rule breaks in step {violation.step}{who}.")
    return "".join(parts)
