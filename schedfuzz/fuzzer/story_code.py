"""Nouns: story, its code.

A finding's requests and events, in order of time, as the lines of a pytest function: they call
what the template defines and end with the assertion of rules that only the end can show.
"""

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.trace import Trace, Violation

WIDTH = 88


def story_lines(scenario: Scenario, violation: Violation, bad: Trace, good: Trace) -> list[str]:
    """Return the lines of the test function's body."""
    stimuli: list[tuple[int, int, Request | Event | str]] = [
        (request.arrival, 0, request) for request in scenario.requests
    ]
    stimuli += [(event.step, 1, event) for event in scenario.events]
    if violation.rule == "passed-over":
        stimuli = [entry for entry in stimuli if entry[0] <= violation.step]
        if violation.path == "resumed":
            # It has been scheduled before: what counts is what follows its last preemption.
            when = max((s.index for s in bad.steps if violation.request in s.preempted), default=0)
            stimuli.append((when, 2, "engine.model_executor.scheduled.clear()"))
    lines = _beginning(violation)
    now = 0
    for when, _, item in sorted(stimuli, key=lambda entry: entry[:2]):
        if when > now:
            lines.append(_steps(when - now))
            now = when
        lines += _telling(item, scenario)
    return lines + _ending(violation, now, max(len(bad.steps), len(good.steps)))


def _telling(item: Request | Event | str, scenario: Scenario) -> list[str]:
    if isinstance(item, str):
        return [item]
    if isinstance(item, Request):
        arguments = [f'"{item.id}"', f"prompt={_prompt(item)}", f"max_tokens={item.max_tokens}"]
        if scenario.engine.policy == "priority":
            arguments.append(f"priority={item.priority}")
        line = f"add_request(engine, {', '.join(arguments)})"
        if len(line) <= WIDTH - 4:
            return [line]
        return ["add_request(", "    engine,", *(f"    {text}," for text in arguments), ")"]
    if isinstance(item, ResetPrefixCache):
        return [f"engine.reset_prefix_cache(reset_running_requests={item.preempt_running})"]
    assert isinstance(item, Abort)
    if item.in_flight:
        return [f'engine.aborts_queue.put(["{item.request}"])']
    return [f'engine.abort_requests(["{item.request}"])']


def _prompt(request: Request) -> str:
    """Return an expression for the prompt's tokens: families and requests never share one."""
    prompt = request.prompt
    shared = prompt.length if prompt.shared is None else prompt.shared
    own = 10_000 * (1001 + request.id)
    parts = [
        _tokens(10_000 * prompt.family, shared),
        _tokens(own, prompt.length - shared),
    ]
    return " + ".join(part for part in parts if part)


def _tokens(first: int, count: int) -> str:
    if count < 2:
        return f"[{first}]" * count
    return f"list(range({first}, {first + count}))" if first else f"list(range({count}))"


def _steps(count: int) -> str:
    return "step(engine)" if count == 1 else f"step(engine, times={count})"


def _beginning(violation: Violation) -> list[str]:
    if violation.rule != "blocks-left":
        return []
    return [
        "block_pool = engine.scheduler.kv_cache_manager.block_pool",
        "free_blocks = block_pool.get_num_free_blocks()",
    ]


def _ending(violation: Violation, now: int, steps: int) -> list[str]:
    """Return the lines after the last stimulus, which came before step `now`."""
    if violation.rule == "passed-over":
        waited = f'assert "{violation.request}" in engine.model_executor.scheduled'
        return [_steps(violation.step + 1 - now), waited]
    lines = [f"run_to_end(engine, limit={steps + 20})"]
    if violation.rule == "blocks-left":
        lines.append("assert block_pool.get_num_free_blocks() == free_blocks")
    if violation.rule == "requests-left":
        lines.append("assert not engine.scheduler.requests")
    return lines
