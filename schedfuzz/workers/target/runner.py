"""Nouns: simulated runner, batch, row, drafts.

A second, independent implementation of the contract of vLLM's V1 model runner
(`v1/worker/gpu_model_runner.py`, sync and async), with a pure function for a model: what the
scheduler sends is checked against what the runner itself knows, token by token and slot by slot.
"""

from typing import Any

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import draft, extend_digests, next_token
from schedfuzz.corpus.trace import Scheduled, Violation
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.shadow import ShadowKV
from schedfuzz.workers.target.state import State


class SimulatedRunner:
    """Executes scheduler outputs; `records`, `noted` and `step` are read and set by the driver."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.step = 0
        self.records: list[Scheduled] = []
        self.noted: list[Violation] = []
        self.requests: dict[str, Request] = {}
        self.states: dict[str, State] = {}
        self.batch: dict[str, None] = {}
        self.told: set[str] = set()
        self.kv = ShadowKV(engine.num_blocks, engine.block_size)

    def execute(self, output: Any) -> dict[str, list[int]]:
        """Run one scheduler output; return sampled tokens per request (empty: discarded).

        Raises BrokenRule when the output breaks a fatal rule.
        """
        self.records = []
        self._update(output)
        self.records = self._proposed(output)  # what a step that breaks a rule is shown with
        rows = [self._row(req_id, tokens, output) for req_id, tokens in self._shares(output)]
        for state, start, end, digests, *_ in rows:
            self.kv.write(state.blocks, start, digests, end)
        # Attention runs after all KV of the step is written: a request may hit a prefix that
        # another one computes in the same step.
        for state, _, end, digests, *_ in rows:
            self._check_context(state, end, digests)
        self.records = []
        samples = [self._sample(*row) for row in rows]
        self._draft(rows)
        return dict(zip(self.batch_order, samples, strict=True))

    # -- state updates, in the order of the real runner ------------------------------------------

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
        if getattr(output, "new_block_ids_to_zero", None):
            self.kv.clear(output.new_block_ids_to_zero)
        for data in output.scheduled_new_reqs:
            request = self.requests[data.req_id]
            self.states[data.req_id] = State(request.id, request.accept, data)
            self.batch[data.req_id] = None
        for index, req_id in enumerate(cached.req_ids):
            self._update_cached(cached, index, req_id, req_id in resumed)

    def _update_cached(self, cached: Any, index: int, req_id: str, resumed: bool) -> None:
        state = self.states.get(req_id)
        if state is None:
            self._fail("unknown-request", f"{req_id} was never sent to the runner")
        assert state is not None
        state.path = "resumed" if resumed else "running"
        state.computed = cached.num_computed_tokens[index]
        state.reported_outputs = outputs = cached.num_output_tokens[index]
        if outputs < len(state.outputs):
            state.set_outputs(state.outputs[:outputs])
        new_blocks = cached.new_block_ids[index]
        if resumed:
            if new_blocks is None:
                self._fail("resumed-in-full", "it was resumed without a block table", state)
            state.blocks = list(new_blocks[0])
        elif new_blocks is not None:
            state.blocks.extend(new_blocks[0])
        if req_id not in self.batch:
            if self.engine.async_scheduling and outputs > 0:
                self._restore(state, cached.all_token_ids.get(req_id), outputs)
            self.batch[req_id] = None

    def _restore(self, state: State, tokens: list[int] | None, outputs: int) -> None:
        if tokens is None:
            self._fail("resumed-tokens", "it re-entered the batch without its tokens", state)
        assert tokens is not None
        state.set_outputs(list(tokens[-outputs:]))

    # -- one step --------------------------------------------------------------------------------

    def _proposed(self, output: Any) -> list[Scheduled]:
        """Return the step's shares as the scheduler sent them, with nothing sampled yet."""
        drafts = output.scheduled_spec_decode_tokens
        return [
            Scheduled(
                state.number, state.path, state.computed, tokens, len(drafts.get(req_id, ())),
                len(state.blocks), 0,
            )
            for req_id, tokens in output.num_scheduled_tokens.items()
            if (state := self.states.get(req_id)) is not None
        ]  # fmt: skip

    def _shares(self, output: Any) -> list[tuple[str, int]]:
        shares = output.num_scheduled_tokens
        self.batch_order = list(shares)
        total = sum(shares.values())
        engine = self.engine
        if total != output.total_num_scheduled_tokens:
            self._fail("token-total", f"{total} != {output.total_num_scheduled_tokens}")
        if total > engine.max_num_batched_tokens:
            self._fail("token-budget", f"{total} > {engine.max_num_batched_tokens}")
        if len(shares) > engine.max_num_seqs:
            self._fail("seats", f"{len(shares)} > {engine.max_num_seqs}")
        return list(shares.items())

    def _row(self, req_id: str, tokens: int, output: Any) -> tuple[Any, ...]:
        """Return (state, start, end, digests, drafts, samples) of one request's share."""
        state = self.states.get(req_id)
        if state is None or req_id not in self.told:
            self._fail("unknown-request", f"{req_id} was scheduled without its data")
        assert state is not None
        scheduled = output.scheduled_spec_decode_tokens.get(req_id, ())
        self._check_share(state, tokens, len(scheduled))
        start = self._real_start(state)
        end = start + tokens
        newest = end - len(scheduled)
        if newest > state.known:
            detail = f"it runs to position {newest} but has only {state.known} tokens"
            self._fail("unknown-input", detail, state)
        samples = state.computed + tokens >= self._counted(state)
        if samples and newest != state.known:
            detail = f"it samples after token {newest} of {state.known}"
            self._fail("misplaced-sample", detail, state)
        drafts = self._drafts(state, list(scheduled))
        digests = state.digests
        if drafts:
            digests = digests[:newest]
            extend_digests(digests, drafts)
        self._check_table(state, end)
        return state, start, end, digests, drafts, samples

    def _real_start(self, state: State) -> int:
        """Return the first position computed: the scheduler's count less rejected drafts."""
        if not (self.engine.async_scheduling and state.prev_drafts):
            return state.computed
        start = state.prev_start + state.prev_valid
        if start > state.computed:
            self._fail("computed-behind", f"{state.computed} < {start}", state)
        return start

    def _counted(self, state: State) -> int:
        """Return the tokens a step must reach to sample (with async placeholders)."""
        if self.engine.async_scheduling and state.path != "new":
            return len(state.prompt) + state.reported_outputs
        return state.known

    def _drafts(self, state: State, scheduled: list[int]) -> list[int]:
        if self.engine.async_scheduling and scheduled:
            # The scheduler only sends placeholders; the runner uses its own last proposal.
            own = state.next_drafts[: len(scheduled)]
            return own + [0] * (len(scheduled) - len(own))
        return [max(token, 0) for token in scheduled]

    def _sample(
        self, state: State, start: int, end: int, digests: list[int], drafts: list[int], ok: bool
    ) -> list[int]:
        tokens: list[int] = []
        if ok:
            position = end - len(drafts) - 1
            tokens.append(next_token(digests[position]))
            for proposed in drafts:
                if proposed != tokens[-1]:
                    break
                position += 1
                tokens.append(next_token(digests[position]))
            self._check_room(state, len(tokens))
            state.outputs.extend(tokens)
            extend_digests(state.digests, tokens)
        state.prev_drafts, state.prev_start, state.prev_valid = len(drafts), start, len(tokens)
        share = end - start
        self.records.append(
            Scheduled(
                state.number,
                state.path,
                state.computed,
                share,
                len(drafts),
                len(state.blocks),
                len(tokens),
            )  # fmt: skip
        )
        return tokens

    def _draft(self, rows: list[tuple[Any, ...]]) -> None:
        width = self.engine.num_speculative_tokens
        if not width:
            return
        # The V1 drafter proposes zeros for the whole batch when any row is too near the limit.
        room = max((row[2] for row in rows), default=0) + width <= self.engine.max_model_len
        for state, *_, samples in rows:
            if samples and room:
                position = state.known - 1
                state.next_drafts = draft(state.digests[-1], position, state.accept, width)
            else:
                state.next_drafts = [0] * width

    def proposals(self) -> tuple[list[str], list[list[int]]]:
        """Return the drafts of every row of the last step, for `take_draft_token_ids`."""
        ids = [req_id for req_id in self.batch_order if req_id in self.states]
        return ids, [list(self.states[req_id].next_drafts) for req_id in ids]

    # -- checks ----------------------------------------------------------------------------------

    def _check_share(self, state: State, tokens: int, drafts: int) -> None:
        if tokens <= 0:
            self._fail("nonpositive-tokens", f"it is scheduled for {tokens} tokens", state)
        if drafts > self.engine.num_speculative_tokens:
            self._fail("draft-width", f"it is scheduled with {drafts} drafts", state)
        limit = self.engine.max_model_len
        if state.computed + tokens + 1 > limit:
            detail = (
                f"{state.computed} computed + {tokens} scheduled + 1 sampled > {limit} "
                f"({drafts} drafts)"
            )
            self.noted.append(
                violation("past-max-model-len", detail, self.step, state.number, state.path)
            )

    def _check_table(self, state: State, end: int) -> None:
        needed = -(-end // self.engine.block_size)
        if len(state.blocks) < needed:
            detail = f"{len(state.blocks)} blocks for {end} tokens, {needed} needed"
            self._fail("block-table", detail, state)
        if any(not 0 < block < self.engine.num_blocks for block in state.blocks[:needed]):
            self._fail("block-table", "the null block or no block within its tokens", state)

    def _check_context(self, state: State, end: int, digests: list[int]) -> None:
        position = self.kv.first_mismatch(state.blocks, digests, end)
        if position is not None:
            held = "nothing" if self.kv.slot(state.blocks, position) == 0 else "other content"
            detail = f"position {position} of its context holds {held}"
            self._fail("kv-content", detail, state)

    def _check_room(self, state: State, sampled: int) -> None:
        # Source: the bookkeeping assertion of the V1 runner; async appends one placeholder.
        count = 1 if self.engine.async_scheduling else sampled
        if state.known + count > self.engine.max_model_len:
            detail = f"{state.known} tokens + {count} sampled > {self.engine.max_model_len}"
            self._fail("sampled-past-max-model-len", detail, state)

    def _fail(self, rule: str, detail: str, state: State | None = None) -> None:
        number = None if state is None else state.number
        path = "" if state is None else state.path
        raise BrokenRule(violation(rule, detail, self.step, number, path))
