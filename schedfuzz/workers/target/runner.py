"""Nouns: simulated runner, row, drafts.

A second, independent implementation of the contract of vLLM's model runners, with a pure function
for a model: what the scheduler sends is checked against what the runner itself knows, token by
token and slot by slot. What the runner generations share stands here; what they do differently
(`runner_v1`, `runner_v2`) are the methods that raise NotImplementedError.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import draft, extend_digests
from schedfuzz.corpus.trace import Scheduled, Violation
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.bitmask import NO_ROWS, Rows, read_rows
from schedfuzz.workers.target.kv import KVCache
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.sessions import Sessions
from schedfuzz.workers.target.state import State


class SimulatedRunner:
    """Executes scheduler outputs; `records`, `noted` and `step` are read and set by the driver."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.step = 0
        self.records: list[Scheduled] = []
        self.noted: list[Violation] = []
        self.requests: dict[str, Request] = {}
        self.generates = engine.model != "pooling"
        self.sessions = Sessions({}, engine.max_model_len)
        self.states: dict[str, State] = {}
        self.told: set[str] = set()
        self.batch_order: list[str] = []
        self.kv = KVCache(engine)
        self.parts: list[Part] = []
        self.fields: dict[str, Any] = {}
        self.happened: list[str] = []
        self.output: Any = None
        self.rows: list[Row] = []
        self.grammar_rows = NO_ROWS
        self.proposed: tuple[list[str], list[list[int]]] | None = None

    def execute(self, output: Any) -> None:
        """Run the forward of one scheduler output; `sample` must follow.

        Raises BrokenRule when the output breaks a fatal rule.
        """
        self.output = output
        self.records = []
        checks.blocks(self, output)
        self.kv.begin(output)
        self._update(output)
        self.records = self._proposed(output)  # what a step that breaks a rule is shown with
        for part in self.parts:
            part.begin(output)
        self.rows = self._forward(output)

    def sample(self, grammar_output: Any) -> dict[str, list[int]]:
        """Sample the step just executed; return tokens per request (empty: discarded).

        `grammar_output` is vLLM's GrammarOutput or None. `fields` is left with what the parts add
        to vLLM's ModelRunnerOutput. Raises BrokenRule.
        """
        self.records = []
        self.grammar_rows = self._grammar_rows(grammar_output)
        tokens = [self._sample(row) for row in self.rows]
        self._draft(self.rows, self.output)
        drafts = self.engine.num_speculative_tokens or self.engine.canvas_length
        self.proposed = self.proposals() if drafts else None
        samples = dict(zip(self.batch_order, tokens, strict=True))
        self.fields = {}
        for part in self.parts:
            self.fields |= part.end(self.output, samples)
        return samples

    def _grammar_rows(self, grammar_output: Any) -> Rows:
        if grammar_output is None:
            return NO_ROWS
        return read_rows(self.output, grammar_output, self.step, self.engine.model_runner)

    def _forward(self, output: Any) -> list[Row]:
        shares = output.num_scheduled_tokens
        self.batch_order = list(shares)
        checks.totals(self, output)
        rows = [self._row(req_id, tokens, output) for req_id, tokens in shares.items()]
        checks.common_prefix(self, output, rows)
        checks.zeroed(self, rows)
        self.kv.compute(rows)
        # Attention runs after all KV of the step is written: a request may hit a prefix that
        # another one computes in the same step.
        for row in rows:
            checks.context(self, row)
        return rows

    def _request(self, data: Any) -> Request:
        """Return the request that vLLM's data starts: of a session, as its present turn asks."""
        return self.sessions.enter(self.step, data) or self.requests[data.req_id]

    # -- what the generations do differently -----------------------------------------------------

    def _update(self, output: Any) -> None:
        """Take over finished, new and cached requests in the order of the real runner."""
        raise NotImplementedError

    def _real_start(self, state: State) -> int:
        """Return the first position computed. Raises BrokenRule if the scheduler is behind."""
        raise NotImplementedError

    def _samples(self, state: State, start: int, tokens: int) -> bool:
        """Return whether a share's sample is kept, rather than that of a prefill chunk."""
        raise NotImplementedError

    def _inputs(self, state: State, scheduled: list[int]) -> list[int]:
        """Return the draft tokens that the forward reads for those the scheduler sent."""
        raise NotImplementedError

    def _sampled(self, row: Row, tokens: list[int]) -> None:
        """Take over what a row sampled."""
        raise NotImplementedError

    def _drafter_has_room(self, rows: list[Row]) -> bool:
        """Return whether drafts are proposed at all; if not, the whole batch gets zeros."""
        raise NotImplementedError

    def proposals(self) -> tuple[list[str], list[list[int]]] | None:
        """Return the drafts of every row of the last step, for `take_draft_token_ids`."""
        raise NotImplementedError

    # -- one step --------------------------------------------------------------------------------

    def _proposed(self, output: Any) -> list[Scheduled]:
        """Return the step's shares as the scheduler sent them, with nothing sampled yet."""
        drafts = output.scheduled_spec_decode_tokens
        return [
            Scheduled(
                state.number, state.path, state.computed, tokens, len(drafts.get(req_id, ())),
                len(state.tables[0]), 0,
            )
            for req_id, tokens in output.num_scheduled_tokens.items()
            if (state := self.states.get(req_id)) is not None
        ]  # fmt: skip

    def _row(self, req_id: str, tokens: int, output: Any) -> Row:
        """Return one request's share after checking it. Raises BrokenRule."""
        state = checks.known(self, req_id)
        scheduled = list(output.scheduled_spec_decode_tokens.get(req_id, ()))
        checks.share(self, state, tokens, len(scheduled))
        start = self._real_start(state)
        end = start + tokens
        newest = end - len(scheduled)
        samples = self.generates and self._samples(state, start, tokens)
        checks.inputs(self, state, newest, samples)
        drafts = self._inputs(state, scheduled)
        digests = state.digests
        if drafts:
            digests = digests[:newest]
            extend_digests(digests, drafts, state.seed)
        checks.table(self, state, start, end, len(scheduled))
        for part in self.parts:
            part.attend(state, start, end)
        return Row(state, start, end, digests, drafts, samples)

    def _sample(self, row: Row) -> list[int]:
        """Return the tokens that a row yields: accepted drafts and one more, or none."""
        state = row.state
        tokens: list[int] = []
        if row.samples:
            tokens = self._verified(row)
            checks.room(self, state, len(tokens))
            state.outputs.extend(tokens)
            extend_digests(state.digests, tokens, state.seed)
        self._sampled(row, tokens)
        self.kv.settle(row, len(tokens))
        self.records.append(
            Scheduled(
                state.number, state.path, state.computed, row.end - row.start, len(row.drafts),
                len(state.tables[0]), len(tokens),
            )
        )  # fmt: skip
        return tokens

    def _verified(self, row: Row) -> list[int]:
        """Return what greedy verification yields: drafts while they are right, and one token."""
        state = row.state
        drafts = row.drafts[: self.grammar_rows.acceptable.get(state.number)]
        outputs = list(state.outputs)
        for position, proposed in enumerate((*drafts, None), row.newest):
            mask = self.grammar_rows.mask(row, position)
            outputs.append(state.sampler.choose(row.digests[position], position, outputs, mask))
            if proposed != outputs[-1]:
                break
        return outputs[len(state.outputs) :]

    def _draft(self, rows: list[Row], output: Any) -> None:
        width = self._width(output)
        if self.engine.spec_method == "ngram":
            for row in rows:
                row.state.next_drafts = self._looked_up(row, width)
            return
        if not self._drafter_has_room(rows):
            width = self.engine.num_speculative_tokens
            for row in rows:
                row.state.next_drafts = [0] * width
            return
        for row in rows:
            state = row.state
            if row.samples and width:
                checks.lookahead(self, state)
                state.next_drafts = self._guessed(state, width)
            else:
                state.next_drafts = [0] * width

    def _looked_up(self, row: Row, width: int) -> list[int]:
        """Return an ngram drafter's proposal: as many drafts as the request's script says.

        Source: `v1/spec_decode/ngram_proposer.py`: none without a sample, none past the limit.
        """
        state = row.state
        position = state.known - 1
        script = state.request.proposals
        count = min(width, script[position % len(script)]) if script else width
        count = min(count, self.engine.max_model_len - state.known)
        if not row.samples or count <= 0:
            return []
        return self._guessed(state, count)

    def _guessed(self, state: State, count: int) -> list[int]:
        """Return `count` drafts, as far right as the request's script says."""
        return draft(
            state.sampler.next, state.digests[-1], state.known - 1, state.request.accept, count,
            state.outputs,
        )  # fmt: skip

    def _width(self, output: Any) -> int:
        """Return how many drafts a request is to get for its next step."""
        if self.engine.spec_widths:
            return int(output.num_spec_tokens_to_schedule)
        return self.engine.num_speculative_tokens
