"""Nouns: Trace, Step, Scheduled, Violation, Output.

What one target did with one scenario. A trace holds nothing that differs between two runs of the
same target (no clock, no address), so traces can be compared byte for byte.
"""

from typing import Literal

import msgspec

Kind = Literal["crash", "contract", "corruption", "leak", "starvation", "hang", "divergence"]
KINDS: tuple[Kind, ...] = (
    "crash", "contract", "corruption", "leak", "starvation", "hang", "divergence",
)  # fmt: skip
VerdictName = Literal["fixed", "regressed", "both", "changed", "clean", "infra"]
# Of findings: the pair's news first, then what it has always been like, then what may be meant.
ORDER: tuple[VerdictName, ...] = ("regressed", "fixed", "both", "changed")
# finished: every request left; violated: a rule was broken; rejected: the release refuses the
# configuration or a request; unsupported: it does not know a field; infra: we could not run it.
OutcomeName = Literal["finished", "violated", "rejected", "unsupported", "infra"]
Component = Literal["scheduler", "runner"]
# turn: a streaming session is admitted with its next input
Path = Literal["new", "running", "resumed", "turn"]


class Scheduled(msgspec.Struct, frozen=True, array_like=True):
    """One request's share of a step.

    `start` is the scheduler's number of computed tokens before the step, `tokens` what it
    schedules (`drafts` of them speculative), `blocks` the length of the request's block table and
    `sampled` the number of tokens the runner returned.
    """

    request: int
    path: Path
    start: int
    tokens: int
    drafts: int
    blocks: int
    sampled: int


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One call of the engine's step function.

    `scheduled` is empty for a step that dispatched nothing. `delivered` holds (request, tokens)
    pairs that reached clients in this step; the gauges are read after it.
    """

    index: int
    scheduled: tuple[Scheduled, ...]
    preempted: tuple[int, ...]
    finished: tuple[int, ...]
    delivered: tuple[tuple[int, int], ...]
    running: int
    waiting: int
    free_blocks: int
    events: tuple[str, ...] = ()


class Violation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A broken rule. `path` and `function` are stable across line shifts; `detail` is for people.

    `rule` names the rule, or the exception's type for a crash; `function` is the innermost vLLM
    function of a crash or hang as `module:qualname`. `component` is whose fault it is when the real
    runner played; the simulated one is never at fault.
    """

    kind: Kind
    rule: str
    detail: str
    step: int
    request: int | None = None
    path: str = ""
    function: str = ""
    component: Component = "scheduler"


class Output(msgspec.Struct, frozen=True, array_like=True):
    """What a request's client got: tokens, and vLLM's finish reason (None: never finished)."""

    request: int
    tokens: tuple[int, ...]
    finish_reason: str | None


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """One target's run. `violations[0]` defines the verdict; later ones are its consequences."""

    outcome: OutcomeName
    steps: tuple[Step, ...] = ()
    outputs: tuple[Output, ...] = ()
    violations: tuple[Violation, ...] = ()
    reason: str = ""
    coverage: bytes = b""


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pair says about one scenario; `fingerprint` is empty for clean and infra.

    `component` is whose fault a violation is, None where no rule was broken.
    """

    verdict: VerdictName
    kind: Kind | None = None
    rule: str = ""
    fingerprint: str = ""
    title: str = ""
    detail: str = ""
    component: Component | None = None
