"""Nouns: verdict, fingerprint, divergence, decision.

Violations first, then outcomes, then schedules. A fingerprint is made of stable things only (rule
or exception type, vLLM function, path), never of lines, numbers or messages.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.trace import Output, Scheduled, Step, Trace, Verdict, VerdictName, Violation

CLEAN = Verdict("clean")


def judge(before: Trace, after: Trace, self_check: bool = False) -> Verdict:
    """Return what the pair of traces says; pure, so the same traces give the same verdict.

    In a self-check (one target on both sides) only differences count: what both runs break alike
    is the target's own fault, which a hunt of another pair or of the target alone reports.
    """
    if self_check and _alike(before, after):
        return CLEAN
    for trace in (before, after):
        if trace.outcome in ("infra", "unsupported"):
            return Verdict("infra", detail=trace.reason)
    if before.violations or after.violations:
        return _violated(before, after)
    return _diverged(before, after)


def _alike(before: Trace, after: Trace) -> bool:
    if "infra" in (before.outcome, after.outcome):
        return False
    one, two = (msgspec.structs.replace(trace, coverage=b"") for trace in (before, after))
    return one == two


def _violated(before: Trace, after: Trace) -> Verdict:
    first = before.violations[0] if before.violations else after.violations[0]
    if before.violations and after.violations:
        keys = dict.fromkeys((key(before.violations[0]), key(after.violations[0])))
        return _verdict("both", first, " / ".join(keys), "")
    direction: VerdictName = "fixed" if before.violations else "regressed"
    other = after if before.violations else before
    note = f"; the other side refuses it: {other.reason}" if other.outcome == "rejected" else ""
    return _verdict(direction, first, key(first), note)


def _verdict(name: VerdictName, violation: Violation, identity: str, note: str) -> Verdict:
    return Verdict(
        name, violation.kind, violation.rule, fingerprint(name, identity), title(violation),
        violation.detail + note, violation.component,
    )  # fmt: skip


def key(violation: Violation) -> str:
    """Return the stable identity of a violation; the runner's faults are apart from all others."""
    parts = violation.kind, violation.rule, violation.function, violation.path
    return "|".join(parts if violation.component == "scheduler" else (*parts, violation.component))


def fingerprint(verdict: str, identity: str) -> str:
    """Return the 16-hex-digit fingerprint of a direction and an identity."""
    return hashlib.sha256(f"{verdict}|{identity}".encode()).hexdigest()[:16]


def title(violation: Violation) -> str:
    """Return one short stable line that says which rule broke, where, and the runner's fault."""
    fault = ", the runner's fault" if violation.component == "runner" else ""
    where = f" ({violation.path} request)" if violation.path else ""
    if violation.rule in RULES:
        return f"{violation.rule}{where}{fault}"
    function = violation.function.split(":")[-1]
    return f"{violation.rule}{f' in {function}' if function else ''}{fault}"


# -- divergences ---------------------------------------------------------------------------------


def _diverged(before: Trace, after: Trace) -> Verdict:
    decision = next(_decisions(before, after), None)
    if decision is None:
        return CLEAN
    level, what, detail = decision
    rule = f"{level}:{what}"
    return Verdict(
        "changed", "divergence", rule, fingerprint("changed", rule),
        f"{level} differs first in {what}", detail,
    )  # fmt: skip


def _decisions(before: Trace, after: Trace) -> Iterator[tuple[str, str, str]]:
    """Yield (level, decision, detail) for what differs: outcomes, then schedules in step order."""
    if before.outcome != after.outcome:
        reason = before.reason or after.reason
        yield "outcome", f"{before.outcome} to {after.outcome}", reason
        return
    for one, two in zip(before.outputs, after.outputs, strict=True):
        if one != two and not _cut_short(one, two):
            what = "tokens" if one.tokens != two.tokens else "finish reason"
            yield "outcome", what, f"request {one.request}: {one} / {two}"
            break
    parting = first_difference(before, after)
    if parting is not None:
        yield "schedule", parting.what, parting.detail


class Parting(NamedTuple):
    """Where two schedules part: the position of the step, the decision, and the two ways."""

    position: int
    what: str
    detail: str


def first_difference(before: Trace, after: Trace) -> Parting | None:
    """Return the first step in which the schedules differ, None for two that are alike."""
    for position, (one, two) in enumerate(zip(before.steps, after.steps, strict=False)):
        found = _step_decision(one, two)
        if found is not None:
            return Parting(position, found[0], f"step {one.index}: {found[1]}")
    lengths = len(before.steps), len(after.steps)
    if lengths[0] != lengths[1]:
        return Parting(min(lengths), "steps", f"{lengths[0]} / {lengths[1]} steps")
    return None


def _cut_short(one: Output, two: Output) -> bool:
    """Return whether an abort cut the same output at different lengths: a schedule's matter."""
    shared = min(len(one.tokens), len(two.tokens))
    unfinished = one.finish_reason is None and two.finish_reason is None
    return unfinished and one.tokens[:shared] == two.tokens[:shared]


def _step_decision(one: Step, two: Step) -> tuple[str, str] | None:
    if one.preempted != two.preempted:
        return "preemption", f"preempted {list(one.preempted)} / {list(two.preempted)}"
    ours = {share.request: share for share in one.scheduled}
    theirs = {share.request: share for share in two.scheduled}
    for request in [*ours, *(r for r in theirs if r not in ours)]:
        found = _share_decision(ours.get(request), theirs.get(request))
        if found is not None:
            return found
    if list(ours) != list(theirs):
        return "order", f"order {list(ours)} / {list(theirs)}"
    for name in ("delivered", "finished"):
        if getattr(one, name) != getattr(two, name):
            return name, f"{name} {getattr(one, name)} / {getattr(two, name)}"
    return None


def _share_decision(one: Scheduled | None, two: Scheduled | None) -> tuple[str, str] | None:
    present: Any = one or two
    kind = f"a {present.path} request"
    if one is None or two is None:
        side = "only before" if two is None else "only after"
        return f"admission of {kind} {side}", f"request {present.request} {side}"
    for name in ("path", "start", "tokens", "drafts", "sampled"):
        if getattr(one, name) != getattr(two, name):
            detail = f"request {one.request} {name} {getattr(one, name)} / {getattr(two, name)}"
            return f"{name} of {kind}", detail
    return None


def unbroken(before: Trace, after: Trace) -> tuple[Trace, Trace]:
    """Return two traces as if no rule was broken: judged, they differ in what they did."""
    one, two = (
        msgspec.structs.replace(trace, outcome="finished", violations=())
        for trace in (before, after)
    )
    return one, two


def shorter(before: Trace, after: Trace) -> int:
    """Return the engine steps that show the verdict: those of the side that broke, else the most.

    A reproducer's length is what a reader has to follow.
    """
    broken = [len(trace.steps) for trace in (before, after) if trace.violations]
    return min(broken) if broken else max(len(before.steps), len(after.steps))
