"""Nouns: stub grammar, stub backend, compiling, reasoning stub.

What stands behind vLLM's StructuredOutputManager in place of a compiler: a grammar whose rules the
model of `corpus.tokens` knows, a compilation that takes engine steps instead of seconds, and a
reasoning parser that knows one token.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from vllm.v1.structured_output.backend_types import (
    StructuredOutputBackend,
    StructuredOutputGrammar,
)

from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import REASONING_END, STOP, allowed

WORDS = 2  # 32-bit words of a bitmask row: the model knows 64 tokens


class StubGrammar(StructuredOutputGrammar):
    """One request's grammar; `accepted` are the tokens it was fed and has not been rolled back."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.accepted: list[int] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            if self.is_terminated() or not self._accepts(token, len(self.accepted)):
                return False
            self.accepted.append(token)
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        if self.is_terminated():
            return []
        valid: list[int] = []
        for token in tokens:
            if not self._accepts(token, len(self.accepted) + len(valid)):
                break
            valid.append(token)
            if token == STOP:
                break
        return valid

    def _accepts(self, token: int, count: int) -> bool:
        return token >= 0 and bool(allowed(self.request, count) >> token & 1)

    def rollback(self, num_tokens: int) -> None:
        if num_tokens > len(self.accepted):
            raise ValueError(f"rollback of {num_tokens} of {len(self.accepted)} tokens")
        del self.accepted[len(self.accepted) - num_tokens :]

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        bits = allowed(self.request, len(self.accepted))
        words = [bits >> 32 * index & 0xFFFFFFFF for index in range(WORDS)]
        signed = [word - (1 << 32) if word >> 31 else word for word in words]
        bitmask[batch_index] = torch.tensor(signed, dtype=torch.int32)

    def is_terminated(self) -> bool:
        return bool(self.accepted) and self.accepted[-1] == STOP

    def reset(self) -> None:
        self.accepted = []


class StubBackend(StructuredOutputBackend):
    """Compiles the grammar of one of our requests, whose id is the grammar's text."""

    def __init__(self, requests: dict[str, Request]) -> None:
        self.requests = requests

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, **more: Any
    ) -> StructuredOutputGrammar:
        return StubGrammar(self.requests[grammar_spec])

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        return torch.full((max_num_seqs, WORDS), -1, dtype=torch.int32)

    def destroy(self) -> None:
        pass


class Compiling(Future[Any]):
    """A compilation that is done at an engine step; `now` returns the current one."""

    def __init__(self, grammar: Any, due: int, fails: bool, now: Callable[[], int]) -> None:
        super().__init__()
        self.grammar, self.due, self.fails, self.now = grammar, due, fails, now

    def done(self) -> bool:
        return self.now() >= self.due

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            raise TimeoutError
        if self.fails:
            raise ValueError("the grammar cannot be compiled")
        return self.grammar


class ReasoningStub:
    """A reasoning parser whose only end marker is one token."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        return REASONING_END in input_ids

    def is_reasoning_end_streaming(self, input_ids: Sequence[int], delta_ids: Any) -> bool:
        return REASONING_END in delta_ids
