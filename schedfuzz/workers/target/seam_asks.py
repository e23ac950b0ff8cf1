"""Nouns: seams of what a client asks for beside tokens: logprobs, wishes, input in turns.

vLLM takes bad words as text, which a tokenizer turns into the token ids that its runners see.
"""

from typing import Any

from schedfuzz.corpus.sampling import KNOWN, allowed_tokens, bad_words
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam


def _logprobs(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.logprobs:
        arguments["sampling"]["logprobs"] = 1


def _prompt_logprobs(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.prompt_logprobs:
        arguments["sampling"]["prompt_logprobs"] = 1


class Spelled:
    """A tokenizer of words that spell token ids."""

    max_token_id = KNOWN - 1

    def encode(self, text: str, **more: Any) -> list[int]:
        """Return the ids that a word spells."""
        return [int(token) for token in text.split()]


def _sampling(engine: Engine, request: Request, arguments: Arguments) -> None:
    wishes, sampling = request.sampling, arguments["sampling"]
    if wishes is None:
        return
    if wishes.allowed:
        sampling["allowed_token_ids"] = list(allowed_tokens(wishes.allowed))
    if wishes.bad_words:
        words = bad_words(wishes.bad_words)
        sampling["bad_words"] = [" ".join(map(str, word)) for word in words]
    for name in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
        sampling[name] = float(getattr(wishes, name))


def _turns(engine: Engine, request: Request, arguments: Arguments) -> None:
    # Every input of a session is resumable but its end.
    arguments["resumable"] = bool(request.turns)


ASK_SEAMS: tuple[Seam, ...] = (
    Seam("logprobs", request=_logprobs),
    Seam("prompt_logprobs", request=_prompt_logprobs),
    Seam("sampling", request=_sampling),
    Seam("turns", request=_turns),
)
