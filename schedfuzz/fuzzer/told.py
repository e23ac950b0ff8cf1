"""Nouns: told step, told outcome.

What a trace says as short lines of ASCII that an exported file can hold and compare.
"""

import textwrap
from collections.abc import Iterator

from schedfuzz.corpus.trace import Step, Trace

WIDTH = 80


def told(trace: Trace, step: int | None = None) -> str:
    """Return one step of a trace, by position, or its outcome and what each client got."""
    if step is None:
        lines = _outcome(trace)
    elif step < len(trace.steps):
        lines = _step(trace.steps[step])
    else:
        lines = iter(["no such step"])
    safe = (line.encode("ascii", "backslashreplace").decode() for line in lines)
    return "\n".join(part for line in safe for part in textwrap.wrap(line, WIDTH))


def _step(step: Step) -> Iterator[str]:
    yield f"step {step.index}"
    for share in step.scheduled:
        yield (
            f"request {share.request} ({share.path}): {share.start} computed, {share.tokens} "
            f"scheduled, {share.drafts} drafts, {share.sampled} sampled"
        )
    for name in ("preempted", "finished"):
        yield f"{name} {list(getattr(step, name))}"
    yield f"delivered {[list(pair) for pair in step.delivered]}"


def _outcome(trace: Trace) -> Iterator[str]:
    yield f"outcome {trace.outcome}"
    for output in trace.outputs:
        yield f"request {output.request} ({output.finish_reason}): {list(output.tokens)}"
