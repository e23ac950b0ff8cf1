"""Nouns: exportable findings.

Findings made by hand, one for each form that an exported pytest file can take.
"""

from fabricated import step
from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, ResetPrefixCache
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Scheduled, Trace, Violation
from schedfuzz.fuzzer.export import CHECKS, Case, build_case
from schedfuzz.fuzzer.judge import judge

NAMES = ("0.28.0", "0.29.0")
ENGINE = Engine(66, 12, block_size=8, max_num_seqs=3, max_num_batched_tokens=32)
PLAIN = Scenario(
    ENGINE,
    (Request(0, Prompt(40, 1), 20), Request(1, Prompt(41, 1, shared=17), 9, arrival=2),
     Request(10_000, Prompt(1, 1000, shared=0), 1, arrival=7)),
)  # fmt: skip
EVENTFUL = replace(
    PLAIN,
    events=(
        ResetPrefixCache(1), Abort(3, 0, in_flight=True), ResetPrefixCache(4, True), Abort(9, 1),
    ),
)  # fmt: skip
DRAFTING = replace(
    PLAIN,
    engine=replace(ENGINE, num_speculative_tokens=3),
    requests=tuple(replace(r, accept=(2, 0, 3)) for r in PLAIN.requests),
)
URGENT = replace(
    EVENTFUL,
    engine=replace(ENGINE, policy="priority"),
    requests=tuple(replace(r, priority=-r.id % 7, arrival=9 - r.arrival) for r in PLAIN.requests),
)
ODD = replace(
    PLAIN,
    engine=Engine(
        66, 12, block_size=8, max_num_batched_tokens=80, long_prefill_token_threshold=9,
        chunked_prefill=False, prefix_caching=False, async_scheduling=True,
    ),
)  # fmt: skip
LONG = Scenario(
    Engine(4096, 4096, num_speculative_tokens=8),
    tuple(Request(9_000 + n, Prompt(4095, 999, shared=2000), 4096) for n in range(3)),
)
FINE = Trace("finished", (step(0),) * 4)
REJECTED = Trace("rejected", reason='ValueError: """ no {{ thanks }}')
CRASH = Violation(
    "crash", "KeyError", "KeyError: '3'", 3, None, "",
    "vllm.v1.core.sched.scheduler:Scheduler.update_from_output.<locals>.<lambda>",
)  # fmt: skip


def accepting(*requests: int, times: int = 3) -> tuple:
    """Return steps in which these requests get two accepted drafts each, `times` times."""
    prefill = [Scheduled(number, "new", 0, 4, 0, 1, 1) for number in requests]
    decode = [Scheduled(number, "running", 40, 4, 3, 6, 3) for number in requests]
    return step(0, *prefill), *(step(1 + n, *decode) for n in range(times))


def bad(found: Violation, *steps: object) -> Trace:
    return Trace("violated", steps or (step(0),) * 5, violations=(found,))  # type: ignore[arg-type]


def case(scenario: Scenario, before: Trace, after: Trace = FINE) -> Case:
    """Return the exported file of what a pair said."""
    return build_case(scenario, judge(before, after), NAMES, before, after)


def broken(rule: str, path: str = "running", at: int = 4) -> Violation:
    return violation(rule, "9 > 8", at, 1, path)


PREEMPTED = (step(0), step(1, preempted=(1,)), step(2), step(3, preempted=(0, 1)), step(4))
# name -> (scenario, before, after)
FINDINGS: dict[str, tuple[Scenario, Trace, Trace]] = {
    **{rule: (PLAIN, bad(broken(rule)), FINE) for rule in CHECKS},
    "draft-width beside drafts": (DRAFTING, bad(broken("draft-width")), FINE),
    "crash": (PLAIN, bad(CRASH), FINE),
    "crash of nobody": (PLAIN, bad(replace(CRASH, function="")), FINE),
    "long crash": (
        PLAIN, bad(replace(CRASH, rule="E" * 90, function="vllm." + "f" * 90)), FINE,
    ),
    "deadlock": (EVENTFUL, bad(broken("deadlock", "waiting")), FINE),
    "livelock": (PLAIN, bad(broken("livelock", "preempted")), FINE),
    "passed-over": (PLAIN, bad(broken("passed-over", "new", 14)), FINE),
    "passed-over early": (EVENTFUL, bad(broken("passed-over", "new", 6)), FINE),
    "passed-over resumed": (EVENTFUL, bad(broken("passed-over", "resumed", 9), *PREEMPTED), FINE),
    "blocks-left": (EVENTFUL, bad(broken("blocks-left", "")), FINE),
    "requests-left": (PLAIN, bad(broken("requests-left", "")), FINE),
    "priority": (URGENT, bad(broken("deadlock", "waiting")), FINE),
    "accepted drafts": (DRAFTING, bad(broken("past-max-model-len"), *accepting(0, 1)), FINE),
    "accepted drafts, urgent": (
        replace(URGENT, engine=replace(URGENT.engine, num_speculative_tokens=3)),
        bad(broken("deadlock", "waiting"), *accepting(0, 1)), FINE,
    ),
    "many accepted drafts": (
        LONG, bad(broken("past-max-model-len"), *accepting(9000, 9001, times=30)), FINE,
    ),
    "a row of accepted drafts": (
        LONG, bad(broken("past-max-model-len"), *accepting(9000, 9001, 9002, times=4)), FINE,
    ),
    "odd engine": (ODD, bad(broken("past-max-model-len")), FINE),
    "refused after": (PLAIN, bad(broken("past-max-model-len")), REJECTED),
    "refused after, passed-over": (PLAIN, bad(broken("passed-over", "new", 14)), REJECTED),
    "regressed": (PLAIN, FINE, bad(broken("seats"))),
    "both": (PLAIN, bad(broken("seats")), bad(CRASH)),
}  # fmt: skip
