"""Nouns: seams of what a client asks for beside tokens: logprobs, and input that comes in turns."""

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam


def _logprobs(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.logprobs:
        arguments["sampling"]["logprobs"] = 1


def _prompt_logprobs(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.prompt_logprobs:
        arguments["sampling"]["prompt_logprobs"] = 1


def _turns(engine: Engine, request: Request, arguments: Arguments) -> None:
    # Every input of a session is resumable but its end.
    arguments["resumable"] = bool(request.turns)


ASK_SEAMS: tuple[Seam, ...] = (
    Seam("logprobs", request=_logprobs),
    Seam("prompt_logprobs", request=_prompt_logprobs),
    Seam("turns", request=_turns),
)
