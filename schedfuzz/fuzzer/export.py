"""Nouns: pytest case, check.

Turns a finding into one self-contained pytest file in the idiom of vLLM's engine tests: an
`EngineCore` with a fake executor, the requests and events as a linear story, and the broken rule as
an assertion. Nothing of schedfuzz is needed to run it.
"""

import json
import re
import textwrap
from dataclasses import dataclass

import jinja2

from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict, Violation
from schedfuzz.fuzzer.driven import Driven, driven_text
from schedfuzz.fuzzer.retell import accepted_drafts, beyond_the_template, retell
from schedfuzz.fuzzer.story_code import WIDTH, story_lines

_DRAFTS = "drafts = scheduler_output.scheduled_spec_decode_tokens.get(req_id, ())"
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
        '    assert end + 1 <= MAX_MODEL_LEN, f"{req_id}: {end} computed + 1 sampled"',
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
        f"    {_DRAFTS}",
        "    assert len(drafts) <= NUM_SPECULATIVE_TOKENS, req_id",
    ],
    "misplaced-sample": [
        "for req_id in scheduler_output.num_scheduled_tokens:",
        "    request = self.scheduler.requests[req_id]",
        f"    {_DRAFTS}",
        "    newest = request.num_computed_tokens - len(drafts)",
        "    samples = not request.is_prefill_chunk",
        '    assert not samples or newest == request.num_tokens, f"{req_id}: {newest}"',
    ],
}
# Rules that only make sense without batches in flight, where both sides count the same tokens.
SYNC_ONLY = {"misplaced-sample"}
# What would end pytest itself.
NO_STORY = {"process-died"}
REAL = ":real"
MAX_NAME = 60


@dataclass(frozen=True)
class Case:
    """An exported file's name and text; `driven` ones need schedfuzz beside vLLM."""

    filename: str
    text: str
    driven: bool = False


def build_case(
    scenario: Scenario, verdict: Verdict, names: tuple[str, str], before: Trace, after: Trace,
    driven: bool = False,
) -> Case:  # fmt: skip
    """Return the pytest file of a finding; `names` are before and after.

    A story in vLLM's own words where it has one (and `driven` does not ask otherwise), else the
    scenario for schedfuzz's driver.
    """
    bad, good = (after, before) if verdict.verdict == "regressed" else (before, after)
    violation = bad.violations[0] if bad.violations else None
    if driven or violation is None or no_story(scenario, violation):
        return _driven(scenario, verdict, names, before, after)
    names = no_runner(names[0]), no_runner(names[1])
    engine = scenario.engine
    context = {
        "engine": engine,
        "drafts": engine.num_speculative_tokens > 0,
        "names_width": engine.num_speculative_tokens > 0 or violation.rule == "draft-width",
        "accepted": _accepted(accepted_drafts(scenario, bad)),
        "checks": [] if _shows_itself(violation.kind) else CHECKS[violation.rule],
        "tracks_scheduled": violation.rule == "passed-over",
        "priorities": engine.policy == "priority",
        "may_refuse": good.outcome == "rejected",
        "refusal": _refusal(good),
        "ends": violation.rule != "passed-over",
        "headline": _headline(violation),
        "story": _words(retell(scenario, bad)),
        "releases": _words(_releases(names, before, after)),
        "name": _name(violation),
        "body": story_lines(scenario, violation, bad, good),
    }
    text = _template().render(context)
    stem = f"test_{_name(violation)}_{verdict.fingerprint[:8]}"
    return Case(f"{stem}.py", text)


def no_story(scenario: Scenario, violation: Violation) -> str:
    """Return why a violation cannot be told in vLLM's own words, "" when it can."""
    if untold := beyond_the_template(scenario):
        return f"nothing tells {untold}"
    if violation.component == "runner":
        return "the model runner is at fault"
    rule = violation.rule
    if _shows_itself(violation.kind):
        told = rule not in NO_STORY
    else:
        told = rule in CHECKS and not (rule in SYNC_ONLY and scenario.engine.async_scheduling)
    return "" if told else f"nothing tells rule {rule}"


def no_runner(name: str) -> str:
    """Return a target's name without its runner: a story's executor is the file's own."""
    return name.replace(REAL, "")


def _driven(
    scenario: Scenario, verdict: Verdict, names: tuple[str, str], before: Trace, after: Trace
) -> Case:
    bad = after if verdict.verdict == "regressed" else before
    case = Driven(scenario, verdict, before, after, any(REAL in name for name in names))
    headline = _headline(bad.violations[0]) if bad.violations else _words(f"{verdict.title}.")
    paragraphs = (headline, _words(retell(scenario, bad)), _words(_releases(names, before, after)))
    return Case(f"test_{case.name}.py", driven_text("\n\n".join(paragraphs), [case]), True)


def _shows_itself(kind: str) -> bool:
    """Return whether a story ends otherwise for a finding of this kind, without a check in it."""
    return kind in ("crash", "starvation", "leak")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("schedfuzz.fuzzer"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    return environment.get_template("test_case.py.j2")


def _headline(violation: Violation) -> str:
    if violation.rule in RULES:
        sentence = RULES[violation.rule][1]
        return _words(sentence[0].upper() + sentence[1:] + ".")
    where = violation.function.split(":")[-1] or "the engine"
    return _words(f"{violation.rule} in {where}.")


def _words(text: str) -> str:
    """Return text as lines of a docstring, which it cannot end: escaped, and no double quotes."""
    safe = re.sub(r"\s+", " ", text).replace('"', "'").encode("unicode_escape").decode()
    # The opening quotes share the first line; a long word alone on its line is no lint.
    return textwrap.fill(safe, WIDTH - 3, break_long_words=False, break_on_hyphens=False)


def _accepted(counts: dict[str, dict[int, int]]) -> list[str]:
    """Return the lines that define ACCEPTED, as a formatter leaves them."""
    line = f"ACCEPTED = {counts}".replace("'", '"')
    if not counts or len(line) <= WIDTH:
        return [line] if counts else []
    lines = ["ACCEPTED = {"]
    for req_id, per in counts.items():
        line = f'    "{req_id}": {per},'
        if len(line) <= WIDTH:
            lines.append(line)
        else:
            entries = (f"        {position}: {count}," for position, count in per.items())
            lines += [f'    "{req_id}": {{', *entries, "    },"]
    return [*lines, "}"]


def _refusal(good: Trace) -> str:
    """Return the refusal's plain words up to its first figure, as a literal, or ""."""
    words = re.match(r"[A-Za-z' ]*", good.reason.partition(": ")[2])
    return json.dumps(words[0].strip()) if words and words[0].strip() else ""


def _name(violation: Violation) -> str:
    where = f"{violation.path}_request" if violation.path else violation.function.split(".")[-1]
    parts = (violation.rule, where)
    return re.sub(r"[^a-z0-9]+", "_", "_".join(parts).lower()).strip("_")[:MAX_NAME].strip("_")


def _releases(names: tuple[str, str], before: Trace, after: Trace) -> str:
    """Return how each release fares, in one sentence each side."""
    sides = []
    for name, trace in zip(names, (before, after), strict=True):
        if trace.violations:
            first = trace.violations[0]
            sides.append(f"fails on vLLM {name} ({first.kind} {first.rule}: {first.detail})")
        elif trace.outcome == "rejected":
            sides.append(f"vLLM {name} refuses the configuration")
        else:
            sides.append(f"passes on vLLM {name}")
    text = "; ".join(sides) + "."
    return text[0].upper() + text[1:]
