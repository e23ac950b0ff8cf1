"""Nouns: V2 runner, slot.

The contract of vLLM's second model runner (`v1/worker/gpu/model_runner.py`): it keeps its own count
of computed tokens, gives each request one of exactly max_num_seqs slots, frees a preempted one at
once and gets it back as a new request with all tokens so far.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.state import State


class V2Runner(SimulatedRunner):
    """The second generation."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.free_slots = list(range(engine.max_num_seqs))
        self.seen: set[str] = set()

    def _update(self, output: Any) -> None:
        gone = set(output.finished_req_ids) | set(getattr(output, "preempted_req_ids", None) or ())
        for req_id in gone:
            state = self.states.pop(req_id, None)
            if state is not None:
                self.free_slots.append(state.slot)
        self.seen -= set(output.finished_req_ids)
        cached = output.scheduled_cached_reqs
        self.told = {data.req_id for data in output.scheduled_new_reqs} | set(cached.req_ids)
        for data in output.scheduled_new_reqs:
            self._add(data)
        for index, req_id in enumerate(cached.req_ids):
            self._update_cached(cached, index, req_id)
        for req_id, tables in (getattr(output, "block_table_updates", None) or {}).items():
            if req_id in self.states:
                self.states[req_id].tables = [list(table) for table in tables]

    def _add(self, data: Any) -> None:
        known = self.states.get(data.req_id)
        if known is not None:  # a streaming session's next turn keeps its slot
            self.free_slots.append(known.slot)
        state = State(self._request(data), data)
        if not self.free_slots:
            checks.fail(self, "seats", "it is new while every slot is taken", state)
        state.slot = self.free_slots.pop()
        tokens = data.prefill_token_ids
        if tokens is not None:
            state.set_outputs(list(tokens[len(state.prompt) :]))
            state.prefill = len(tokens)
        if known is not None and known.request.turns:
            state.recurrent = known.recurrent
        if data.req_id in self.seen:
            state.path = "resumed" if known is None else "turn"
        state.next_drafts = [0] * self.engine.num_speculative_tokens
        self.seen.add(data.req_id)
        self.states[data.req_id] = state

    def _update_cached(self, cached: Any, index: int, req_id: str) -> None:
        state = self.states.get(req_id)
        if state is None:
            checks.fail(self, "unknown-request", f"{req_id} has no slot in the runner")
        state.path = "running"
        state.computed = cached.num_computed_tokens[index]
        if state.computed < state.own:
            detail = f"{state.computed} computed, the runner has {state.own}"
            checks.fail(self, "computed-behind", detail, state)
        new = cached.new_block_ids[index]
        if new is not None:
            for table, more in zip(state.tables, new, strict=True):
                table.extend(more)

    def _real_start(self, state: State) -> int:
        return state.own

    def _samples(self, state: State, start: int, tokens: int) -> bool:
        return start + tokens >= state.prefill

    def _inputs(self, state: State, scheduled: list[int]) -> list[int]:
        own = state.next_drafts[: len(scheduled)]
        return own + [0] * (len(scheduled) - len(own))

    def _sampled(self, row: Row, tokens: list[int]) -> None:
        rejected = len(row.drafts) + 1 - len(tokens) if row.samples else 0
        row.state.own = row.end - rejected

    def _drafter_has_room(self, rows: list[Row]) -> bool:
        """Return True: this generation's drafters keep to the limit position by position."""
        return True

    def proposals(self) -> tuple[list[str], list[list[int]]] | None:
        """Return placeholders: real drafts only leave this runner for grammars."""
        ids = [req_id for req_id in self.batch_order if req_id in self.states]
        if self.output.has_structured_output_requests:
            return ids, [list(self.states[req_id].next_drafts) for req_id in ids]
        return ids, [[-1] * len(self.states[req_id].next_drafts) for req_id in ids]
