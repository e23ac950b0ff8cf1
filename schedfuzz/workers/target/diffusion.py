"""Nouns: diffusion runner, canvas, denoising, commit.

The contract of a model that denoises a canvas of tokens at once, on the V2 runner. The canvas
travels as drafts: denoising steps reject it whole, and once it has converged one more step with it
as input writes its KV and yields its tokens. The prompt yields none. Source: `diffusion_gemma.py`.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.tokens import spoken_on
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner_v2 import V2Runner
from schedfuzz.workers.target.state import State


class Reads(Part):
    """Read-only requests that are `done`: a step in flight is for nothing, its KV never written."""

    def __init__(self) -> None:
        self.done: set[int] = set()

    def excuses(self, row: Row) -> bool:
        return row.state.number in self.done


class DiffusionRunner(V2Runner):
    """`left` has the denoising steps that each request's canvas still needs, 0: to be committed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.left: dict[int, int] = {}
        self.reads = Reads()
        self.parts.append(self.reads)

    def _row(self, req_id: str, tokens: int, output: Any) -> Row:
        state = self.states.get(req_id)
        canvas = len(output.scheduled_spec_decode_tokens.get(req_id, ()))
        if state is not None:
            self._check_canvas(state, tokens, canvas)
        return super()._row(req_id, tokens, output)

    def _check_canvas(self, state: State, tokens: int, canvas: int) -> None:
        """Check that a share is a piece of the prompt or exactly one canvas after it."""
        if not canvas:
            return
        if state.own < state.prefill:
            detail = f"a canvas at {state.own} of its {state.prefill} tokens"
            checks.fail(self, "canvas", detail, state)
        width = state.request.canvas or self.engine.canvas_length
        if tokens != canvas or canvas > width:
            detail = f"{tokens} tokens for {canvas} of a canvas of {width}"
            checks.fail(self, "canvas", detail, state)

    def _verified(self, row: Row) -> list[int]:
        """Return the canvas if this step commits it, else nothing."""
        number, request = row.state.number, row.state.request
        steps = min(request.denoise, request.max_steps or request.denoise)
        if not row.drafts:
            self.left[number] = steps
            return []
        self.left[number] = self.left.get(number, steps) - 1
        if self.left[number] < 0:
            self.left[number] = steps
            return row.drafts
        if self.left[number] == 0 and request.read_only:
            self.reads.done.add(number)
            return self._converged(row.state, len(row.drafts))
        return []

    def _sampled(self, row: Row, tokens: list[int]) -> None:
        denoised = row.drafts and not tokens
        row.state.own = row.start if denoised else row.end

    def _draft(self, rows: list[Row], output: Any) -> None:
        """Make each canvas that of the next step: noise, or what it converged to."""
        length = self.engine.canvas_length
        for row in rows:
            state = row.state
            ready = row.samples and self.left[state.number] == 0
            state.next_drafts = self._converged(state, length) if ready else [0] * length

    def _converged(self, state: State, length: int) -> list[int]:
        return spoken_on(state.sampler.next, state.digests[-1], state.known - 1, length)
