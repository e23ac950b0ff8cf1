"""Nouns: expected outputs, conversation, turn.

What each client must get, from the scenario alone: no schedule may change a request's tokens, so
both sides and every release are held to the same answer.
"""

from typing import NamedTuple

from msgspec.structs import replace

from schedfuzz.corpus.sampling import truth
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.tokens import (
    SEED,
    STOP,
    VOCAB,
    contents,
    mix,
    prompt_tokens,
    seed_of,
    spoken,
)


def expected_outputs(scenario: Scenario) -> dict[int, list[int]]:
    """Return, per request id, the output tokens an uninterrupted request must deliver."""
    limit = scenario.engine.max_model_len
    if scenario.engine.model == "pooling":
        return {request.id: [] for request in scenario.requests}
    return {
        request.id: [token for turn in conversation(request, limit) for token in turn.tokens]
        for request in scenario.requests
    }


class Spoken(NamedTuple):
    """One turn: all tokens before its output, and the output that it must deliver."""

    prompt: list[int]
    tokens: list[int]


def conversation(request: Request, limit: int) -> list[Spoken]:
    """Return the turns of a request, as far as they fit into `limit` tokens (max_model_len).

    The next turn of a session continues what the client got, less the last token: that one was
    sampled but never computed. A request that is no session has one turn.
    """
    turns: list[Spoken] = []
    prompt = prompt_tokens(request)
    if request.structured is not None and request.structured.fails:
        return []
    for index, view in enumerate(turn_views(request)):
        if index:
            prompt = prompt + turns[-1].tokens[:-1] + turn_tokens(request, index)
        room = limit - len(prompt)
        if room <= 0:
            break
        pick = truth(view, prompt)
        read = contents(request, prompt)
        tokens = spoken(pick, read, min(view.max_tokens, room), seed_of(request.lora))
        turns.append(Spoken(prompt, until_loop(view, until_stop(tokens))))
    return turns


def turn_views(request: Request) -> list[Request]:
    """Return the request as each of its turns asks for output; a bare close is no turn."""
    views = [request]
    for turn in request.turns:
        if turn.length:
            view = replace(
                request, arrival=turn.step, max_tokens=turn.max_tokens, min_tokens=0,
                stop_at=turn.stop_at, logprobs=turn.logprobs, repetition=None,
            )  # fmt: skip
            views.append(view)
    return views


def turn_tokens(request: Request, index: int) -> list[int]:
    """Return the input of a session's turn (1 is the first after the prompt).

    Sessions whose whole prompts are their family's get the same input: they hit one prefix.
    """
    prompt = request.prompt
    common = prompt.shared is None or prompt.shared == prompt.length
    owner = mix(SEED, prompt.family) if common else mix(mix(SEED, 7_777_777), request.id)
    salt = mix(owner, 9_000_000 + index)
    return [mix(salt, position) % VOCAB for position in range(request.turns[index - 1].length)]


def until_stop(tokens: list[int]) -> list[int]:
    """Return the tokens up to the first stop token, that one included."""
    return tokens[: tokens.index(STOP) + 1] if STOP in tokens else tokens


def until_loop(request: Request, tokens: list[int]) -> list[int]:
    """Return the tokens up to where vLLM finds the request to repeat itself, if it looks."""
    for count in range(request.min_tokens, len(tokens) + 1 if request.repetition else 0):
        if loops(request, tokens[:count]):
            return tokens[:count]
    return tokens


def loops(request: Request, tokens: list[int]) -> bool:
    """Return whether output tokens end in as many repeats of a pattern as the request forbids."""
    wanted = request.repetition
    if wanted is None:
        return False
    for size in range(max(1, wanted.min_pattern_size), wanted.max_pattern_size + 1):
        tail = tokens[-size * wanted.min_count :]
        if len(tail) == size * wanted.min_count and tail[size:] == tail[:-size]:
            return True
    return False
