"""Nouns: V1 runner, batch.

The contract of vLLM's first model runner (`v1/worker/gpu_model_runner.py`), sync and async: cached
requests carry the scheduler's counts, a persistent batch carries drafts and sampled tokens.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.state import State


class V1Runner(SimulatedRunner):
    """The first generation."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.batch: dict[str, None] = {}

    def _update(self, output: Any) -> None:
        for req_id in output.finished_req_ids:
            self.states.pop(req_id, None)
            self.batch.pop(req_id, None)
        cached = output.scheduled_cached_reqs
        self.told = {data.req_id for data in output.scheduled_new_reqs} | set(cached.req_ids)
        resumed = cached.resumed_req_ids
        for req_id in list(self.batch):
            if req_id not in output.num_scheduled_tokens or req_id in resumed:
                del self.batch[req_id]
                self.states[req_id].leave_batch()
        for data in output.scheduled_new_reqs:
            self._add(data)
        for index, req_id in enumerate(cached.req_ids):
            self._update_cached(cached, index, req_id, req_id in resumed)

    def _add(self, data: Any) -> None:
        again = data.req_id in self.states
        state = self.states[data.req_id] = State(self._request(data), data)
        state.path = "turn" if again else "new"
        self.batch[data.req_id] = None

    def _update_cached(self, cached: Any, index: int, req_id: str, resumed: bool) -> None:
        state = self.states.get(req_id)
        if state is None:
            checks.fail(self, "unknown-request", f"{req_id} was never sent to the runner")
        state.path = "resumed" if resumed else "running"
        state.computed = cached.num_computed_tokens[index]
        state.reported_outputs = outputs = cached.num_output_tokens[index]
        if outputs < len(state.outputs):
            state.set_outputs(state.outputs[:outputs])
        self._update_tables(state, cached.new_block_ids[index], resumed)
        if req_id not in self.batch:
            if self.engine.async_scheduling and outputs > 0:
                self._restore(state, cached.all_token_ids.get(req_id), outputs)
            self.batch[req_id] = None

    def _update_tables(self, state: State, new: Any, resumed: bool) -> None:
        if resumed:
            if new is None:
                checks.fail(self, "resumed-in-full", "it was resumed without a block table", state)
            state.tables = [list(table) for table in new]
            state.recurrent = None
        elif new is not None:
            for table, more in zip(state.tables, new, strict=True):
                table.extend(more)

    def _restore(self, state: State, tokens: list[int] | None, outputs: int) -> None:
        if tokens is None:
            detail = "it re-entered the batch without its tokens"
            checks.fail(self, "resumed-tokens", detail, state)
        state.set_outputs(list(tokens[-outputs:]))

    def _real_start(self, state: State) -> int:
        """Return the scheduler's count less the rejected drafts of the previous step."""
        if not (self.engine.async_scheduling and state.prev_drafts):
            return state.computed
        start = state.prev_start + state.prev_valid
        if start > state.computed:
            checks.fail(self, "computed-behind", f"{state.computed} < {start}", state)
        return start

    def _samples(self, state: State, start: int, tokens: int) -> bool:
        """Return whether the share reaches all tokens, async placeholders among them."""
        counted = state.known
        if self.engine.async_scheduling and state.path not in ("new", "turn"):
            counted = len(state.prompt) + state.reported_outputs
        return state.computed + tokens >= counted

    def _inputs(self, state: State, scheduled: list[int]) -> list[int]:
        """Return them, or the last proposal; a placeholder stays one, and is always rejected.

        Source: the drafts to verify are gathered before `_preprocess` clamps the input's -1.
        """
        if self.engine.async_scheduling and scheduled:
            # The scheduler only sends placeholders; the runner uses its own last proposal.
            own = state.next_drafts[: len(scheduled)]
            return own + [-1] * (len(scheduled) - len(own))
        return scheduled

    def _sampled(self, row: Row, tokens: list[int]) -> None:
        state = row.state
        state.prev_drafts, state.prev_start = len(row.drafts), row.start
        state.prev_valid = len(tokens)

    def _drafter_has_room(self, rows: list[Row]) -> bool:
        """Return whether all rows, as far as the scheduler sees them, leave room for all drafts.

        Async, that is before the previous step's rejected drafts are taken off. A width that
        follows the batch's size does not count, nor in the zeros that are proposed instead.
        Source: `_input_fits_in_drafter`.
        """
        ends = [row.state.computed + row.end - row.start for row in rows]
        queried = self.engine.num_speculative_tokens + (self.engine.spec_method == "dflash")
        return max(ends, default=0) + queried <= self.engine.max_model_len

    def proposals(self) -> tuple[list[str], list[list[int]]] | None:
        """Return the real drafts; async, they are only copied from the device for grammars."""
        if self.engine.async_scheduling and not self.output.has_structured_output_requests:
            return None
        ids = [req_id for req_id in self.batch_order if req_id in self.states]
        return ids, [list(self.states[req_id].next_drafts) for req_id in ids]
