"""Nouns: real grammar, alphabet.

vLLM's own xgrammar backend on the same grammars as the stub's: each token of the model is one
character, so that a position's allowed tokens become a character class.
"""

from typing import Any

import xgrammar
from vllm.v1.structured_output.backend_types import (
    StructuredOutputGrammar,
    StructuredOutputOptions,
)
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import STOP, VOCAB, allowed

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_~"  # one per token
SPARE = 16  # positions beyond max_tokens that drafts may be validated at


class RealBackend(XgrammarBackend):
    """vLLM's backend, with a compiler for our alphabet in place of a tokenizer's."""

    def __init__(self, vllm_config: Any, requests: dict[str, Request]) -> None:
        self.vllm_config = vllm_config
        self.vocab_size = len(ALPHABET)
        self.requests = requests
        self.disable_any_whitespace = False
        vocabulary = xgrammar.TokenizerInfo(
            list(ALPHABET), xgrammar.VocabType.RAW, vocab_size=len(ALPHABET), stop_token_ids=[STOP]
        )
        self.compiler = xgrammar.GrammarCompiler(vocabulary, max_threads=1)
        speculative = vllm_config.speculative_config
        self.num_speculative_tokens = (
            0 if speculative is None else speculative.num_speculative_tokens
        )

    def compile_grammar(
        self, request_type: Any, grammar_spec: str, **more: Any
    ) -> StructuredOutputGrammar:
        text = grammar_text(self.requests[grammar_spec])
        return super().compile_grammar(StructuredOutputOptions.GRAMMAR, text, **more)


def grammar_text(request: Request) -> str:
    """Return the EBNF of a request's grammar, at least as long as the request can get."""
    length = request.max_tokens + SPARE
    if request.structured is not None and request.structured.ends_after:
        length = min(length, request.structured.ends_after)
    classes = (
        "".join(char for token, char in enumerate(ALPHABET[:VOCAB]) if bits >> token & 1)
        for bits in (allowed(request, count) for count in range(length))
    )
    return "root ::= " + " ".join(f"[{chars}]" for chars in classes)
