"""Nouns: contract check.

What every scheduler output must keep, whatever the runner generation. A check raises BrokenRule for
a fatal rule and notes a survivable one.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.sizing import extra_slots
from schedfuzz.workers.target.drafting import reach
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.state import State

if TYPE_CHECKING:
    from schedfuzz.workers.target.runner import SimulatedRunner


def fail(runner: "SimulatedRunner", rule: str, detail: str, state: State | None = None) -> NoReturn:
    """Raise BrokenRule for a rule at the runner's step."""
    number = None if state is None else state.number
    path = "" if state is None else state.path
    raise BrokenRule(violation(rule, detail, runner.step, number, path))


def note(runner: "SimulatedRunner", rule: str, detail: str, state: State | None = None) -> None:
    """Record a survivable violation at the runner's step."""
    number = None if state is None else state.number
    path = "" if state is None else state.path
    runner.noted.append(violation(rule, detail, runner.step, number, path))


def blame(runner: "SimulatedRunner", rule: str, detail: str, number: int) -> NoReturn:
    """Raise BrokenRule for a rule and a request that need not be in the runner any more."""
    raise BrokenRule(violation(rule, detail, runner.step, number))


def totals(runner: "SimulatedRunner", output: Any) -> None:
    """Check the sums of a step: tokens and seats."""
    shares, engine = output.num_scheduled_tokens, runner.engine
    total = sum(shares.values())
    if total != output.total_num_scheduled_tokens:
        fail(runner, "token-total", f"{total} != {output.total_num_scheduled_tokens}")
    if total > engine.max_num_batched_tokens:
        fail(runner, "token-budget", f"{total} > {engine.max_num_batched_tokens}")
    if len(shares) > engine.max_num_seqs:
        fail(runner, "seats", f"{len(shares)} > {engine.max_num_seqs}")
    slots = extra_slots(engine) * len(shares)
    if total + slots > engine.max_num_batched_tokens:
        detail = f"{total} tokens + {slots} for drafting > {engine.max_num_batched_tokens}"
        note(runner, "draft-slots", detail)


def known(runner: "SimulatedRunner", req_id: str) -> State:
    """Return the state of a request that this step's data names."""
    state = runner.states.get(req_id)
    if state is None or req_id not in runner.told:
        fail(runner, "unknown-request", f"{req_id} was scheduled without its data")
    return state


def share(runner: "SimulatedRunner", state: State, tokens: int, drafts: int) -> None:
    """Check one request's number of tokens and drafts, and the room it leaves."""
    if tokens <= 0:
        fail(runner, "nonpositive-tokens", f"it is scheduled for {tokens} tokens", state)
    width = runner.engine.num_speculative_tokens or runner.engine.canvas_length
    if drafts > width:
        fail(runner, "draft-width", f"it is scheduled with {drafts} drafts", state)
    limit = runner.engine.max_model_len
    bonus = 0 if runner.engine.model in ("diffusion", "pooling") else 1
    if state.computed + tokens + bonus > limit:
        detail = (
            f"{state.computed} computed + {tokens} scheduled + {bonus} sampled > {limit} "
            f"({drafts} drafts)"
        )
        note(runner, "past-max-model-len", detail, state)


def inputs(runner: "SimulatedRunner", state: State, newest: int, samples: bool) -> None:
    """Check that all non-draft input is known, and that a sampling share ends with the newest."""
    if newest > state.known:
        detail = f"it runs to position {newest} but has only {state.known} tokens"
        fail(runner, "unknown-input", detail, state)
    if samples and newest != state.known:
        detail = f"it samples after token {newest} of {state.known}"
        fail(runner, "misplaced-sample", detail, state)


def blocks(runner: "SimulatedRunner", output: Any) -> None:
    """Check what a step copies before its forward: all sources are read before any write."""
    copies = getattr(output, "kv_cache_block_copies", None) or ()
    targets: set[int] = set()
    sources = {source for source, _ in copies}
    for source, target in copies:
        if not 0 < target < runner.engine.num_blocks:
            fail(runner, "block-copy", f"block {source} is copied to no block")
        if runner.kv.empty(source):
            fail(runner, "block-copy", "a copy's source was never written")
        if target in targets or target in sources:
            fail(runner, "block-copy", "a copy's target takes part in another copy of the step")
        targets.add(target)


def zeroed(runner: "SimulatedRunner", rows: list[Row]) -> None:
    """Check that no block holds bytes of a state when a row's attention fills a part of it."""
    for row in rows if runner.kv.zeroes else ():
        block = runner.kv.half_filled(row)
        if block is not None:
            detail = f"block {block} held a recurrent state and is filled up to {row.end} unzeroed"
            fail(runner, "block-zeroed", detail, row.state)


def common_prefix(runner: "SimulatedRunner", output: Any, rows: list[Row]) -> None:
    """Check the blocks that a step's requests are said to share.

    Source: cascade attention, which reads them through one request's table for all, as far as all
    have computed them.
    """
    counts = getattr(output, "num_common_prefix_blocks", None) or ()
    if not rows or not any(counts):
        return
    computed = min(row.start for row in rows) // runner.engine.block_size
    for index, count in enumerate(counts):
        shared = min(count, computed)
        first = rows[0].state.tables[index][:shared]
        for row in rows[1:]:
            if row.state.tables[index][:shared] != first:
                detail = f"{count} blocks are said to be common to all, its own are others"
                fail(runner, "common-prefix", detail, row.state)


def table(runner: "SimulatedRunner", state: State, start: int, end: int, drafts: int) -> None:
    """Check that every KV group's block table covers a share with real blocks."""
    problem = runner.kv.uncovered(state.tables, start, end, drafts)
    if problem:
        fail(runner, "block-table", problem, state)


def context(runner: "SimulatedRunner", row: Row) -> None:
    """Check that every position a row attends to holds its own content."""
    problem = runner.kv.mismatch(row)
    if problem and not any(part.excuses(row) for part in runner.parts):
        fail(runner, "kv-content", problem, row.state)


def room(runner: "SimulatedRunner", state: State, sampled: int) -> None:
    """Check that the tokens just sampled fit. Source: the V1 runner's bookkeeping assertion."""
    count = 1 if runner.engine.async_scheduling else sampled
    if state.known + count > runner.engine.max_model_len:
        detail = f"{state.known} tokens + {count} sampled > {runner.engine.max_model_len}"
        fail(runner, "sampled-past-max-model-len", detail, state)


def lookahead(runner: "SimulatedRunner", state: State) -> None:
    """Check that what the drafter writes from the newest token's position on has its blocks."""
    newest = state.known - 1
    last = min(newest + reach(runner.engine), runner.engine.max_model_len)
    problem = runner.kv.unreached(state.tables, newest, last) if last > newest else ""
    if problem:
        note(runner, "draft-lookahead", f"its drafter writes up to {last}: {problem}", state)
