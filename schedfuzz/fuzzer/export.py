"""Nouns: pytest case, story, check.

Turns a finding into one self-contained pytest file in the idiom of vLLM's engine tests: an
`EngineCore` with a fake executor, the requests and events as a linear story, and the broken rule as
an assertion. Nothing of schedfuzz is needed to run it.
"""

import re
import textwrap
from dataclasses import dataclass

import jinja2

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Abort, Event, Request, ResetPrefixCache, Scenario
from schedfuzz.corpus.trace import Trace, Verdict, Violation
from schedfuzz.fuzzer.retell import accepted_drafts, retell

WIDTH = 88

_DRAFTS = "len(scheduler_output.scheduled_spec_decode_tokens.get(req_id, ()))"
# rule -> the lines that assert it on every scheduler output
CHECKS: dict[str, list[str]] = {
    "nonpositive-tokens": [
        "for req_id, num_tokens in scheduler_output.num_scheduled_tokens.items():",
        "    assert num_tokens > 0, req_id",
    ],
    "past-max-model-len": [
        "for req_id in scheduler_output.num_scheduled_tokens:",
        "    # The scheduler has counted this step's tokens as computed already.",
        "    end = self.scheduler.requests[req_id].num_computed_tokens",
        '    assert end + 1 <= MAX_MODEL_LEN, f"no room to sample for request {req_id}"',
    ],
    "token-total": [
        "total = sum(scheduler_output.num_scheduled_tokens.values())",
        "assert total == scheduler_output.total_num_scheduled_tokens",
    ],
    "token-budget": [
        "budget = self.scheduler_config.max_num_batched_tokens",
        "assert sum(scheduler_output.num_scheduled_tokens.values()) <= budget",
    ],
    "seats": [
        "seats = self.scheduler_config.max_num_seqs",
        "assert len(scheduler_output.num_scheduled_tokens) <= seats",
    ],
    "draft-width": [
        "for req_id in scheduler_output.num_scheduled_tokens:",
        f"    assert {_DRAFTS} <= NUM_SPECULATIVE_TOKENS, req_id",
    ],
    "misplaced-sample": [
        "for req_id in scheduler_output.num_scheduled_tokens:",
        "    request = self.scheduler.requests[req_id]",
        f"    newest = request.num_computed_tokens - {_DRAFTS}",
        "    assert request.is_prefill_chunk or newest == request.num_tokens, req_id",
    ],
}
# Rules that only make sense without batches in flight, where both sides count the same tokens.
SYNC_ONLY = {"misplaced-sample"}


@dataclass(frozen=True)
class Case:
    """An exported file's name and text."""

    filename: str
    text: str


def build_case(
    scenario: Scenario, verdict: Verdict, names: tuple[str, str], before: Trace, after: Trace
) -> Case:
    """Return the pytest file of a finding; `names` are before and after.

    Raises InputError for a kind of finding that has no pytest form yet.
    """
    bad, good = (after, before) if verdict.verdict == "regressed" else (before, after)
    if not bad.violations:
        raise InputError(
            f"a {verdict.kind or verdict.verdict} finding has no pytest form yet; "
            "share its scenario: `schedfuzz show ID --json`"
        )
    violation = bad.violations[0]
    engine = scenario.engine
    context = {
        "engine": engine,
        "drafts": engine.num_speculative_tokens > 0,
        "accepted": accepted_drafts(scenario, bad),
        "checks": _checks(violation, scenario),
        "tracks_scheduled": violation.rule == "passed-over",
        "priorities": engine.policy == "priority",
        "may_refuse": good.outcome == "rejected",
        "ends": violation.rule != "passed-over",
        "headline": _headline(violation),
        "story": textwrap.fill(retell(scenario, bad), WIDTH),
        "releases": textwrap.fill(_releases(verdict, names, bad, good), WIDTH),
        "name": _name(violation),
        "body": _body(scenario, violation, bad, good),
    }
    text = _template().render(context)
    stem = f"test_{_name(violation)}_{verdict.fingerprint[:8]}"
    return Case(f"{stem}.py", text)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("schedfuzz.fuzzer"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    return environment.get_template("test_case.py.j2")


def _checks(violation: Violation, scenario: Scenario) -> list[str]:
    if violation.kind in ("crash", "starvation", "leak"):
        return []
    usable = violation.rule in CHECKS
    if usable and not (violation.rule in SYNC_ONLY and scenario.engine.async_scheduling):
        return CHECKS[violation.rule]
    raise InputError(
        f"a {violation.kind} finding of rule {violation.rule} has no pytest form yet; "
        "share its scenario: `schedfuzz show ID --json`"
    )


def _headline(violation: Violation) -> str:
    if violation.rule in RULES:
        sentence = RULES[violation.rule][1]
        return textwrap.fill(sentence[0].upper() + sentence[1:] + ".", WIDTH)
    where = violation.function.split(":")[-1] or "the engine"
    return f"{violation.rule} in {where}."


def _name(violation: Violation) -> str:
    parts = (violation.rule, violation.path or violation.function.split(".")[-1])
    return re.sub(r"[^a-z0-9]+", "_", "_".join(parts).lower()).strip("_")


def _releases(verdict: Verdict, names: tuple[str, str], bad: Trace, good: Trace) -> str:
    shown = re.sub(r"\s+", " ", bad.violations[0].detail)
    if verdict.verdict == "both":
        return f"Fails on vLLM {names[0]} and {names[1]} ({shown})."
    broken, right = names if verdict.verdict == "fixed" else names[::-1]
    how = "refuses the configuration" if good.outcome == "rejected" else "passes"
    return f"Fails on vLLM {broken} ({shown}); vLLM {right} {how}."


# -- the story as code ---------------------------------------------------------------------------


def _body(scenario: Scenario, violation: Violation, bad: Trace, good: Trace) -> list[str]:
    stimuli: list[tuple[int, int, Request | Event]] = [
        (request.arrival, 0, request) for request in scenario.requests
    ]
    stimuli += [(event.step, 1, event) for event in scenario.events]
    lines: list[str] = []
    now = 0
    for when, _, item in sorted(stimuli, key=lambda entry: entry[:2]):
        if when > now:
            lines.append(_steps(when - now))
            now = when
        lines += _telling(item, scenario)
    return lines + _ending(scenario, violation, bad, good)


def _telling(item: Request | Event, scenario: Scenario) -> list[str]:
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


def _ending(scenario: Scenario, violation: Violation, bad: Trace, good: Trace) -> list[str]:
    if violation.rule == "passed-over":
        last = max(scenario.requests, key=lambda r: r.arrival).arrival
        done = violation.step + 1 - max(last, max((e.step for e in scenario.events), default=0))
        return [
            _steps(max(done, 1)),
            f'assert "{violation.request}" in engine.model_executor.scheduled',
        ]
    limit = max(len(bad.steps), len(good.steps)) + 20
    lines = [f"run_to_end(engine, limit={limit})"]
    if violation.rule == "blocks-left":
        pool = "engine.scheduler.kv_cache_manager.block_pool"
        lines = [f"free_blocks = {pool}.get_num_free_blocks()", *lines]
        lines.append(f"assert {pool}.get_num_free_blocks() == free_blocks")
    return lines
