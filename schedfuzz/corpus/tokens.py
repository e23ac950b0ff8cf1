"""Nouns: prompt tokens, prefix digests, continuation, drafts.

The key insight: the model is a pure function. The digest of a prefix decides its next token, so
whatever the schedule, a request's output must come out the same, and a KV slot can be checked by
the digest of the prefix it was written for. Python's own `hash` is salted per process and is not
used.
"""

from schedfuzz.corpus.scenario import Request, Scenario

MASK = (1 << 62) - 1
SEED = 0x1B873593
VOCAB = 32  # small, so that the drafter's and vLLM's placeholder token 0 is sometimes right


def mix(digest: int, token: int) -> int:
    """Return the 62-bit digest of a prefix extended by one token (multiply-xorshift)."""
    value = (digest ^ (token + 0x9E3779B9)) * 0x2545F4914F6CDD1D & MASK
    return value ^ (value >> 29)


def prompt_tokens(request: Request) -> list[int]:
    """Return the prompt's token ids: the family's part, then the request's own part."""
    prompt = request.prompt
    shared = prompt.length if prompt.shared is None else prompt.shared
    family = mix(SEED, prompt.family)
    own = mix(mix(SEED, 7_777_777), request.id)
    return [
        mix(family if position < shared else own, position) % VOCAB
        for position in range(prompt.length)
    ]


def extend_digests(digests: list[int], tokens: list[int]) -> None:
    """Append the digest after each of `tokens` to `digests` (entry p covers positions 0..p)."""
    digest = digests[-1] if digests else SEED
    for token in tokens:
        digest = mix(digest, token)
        digests.append(digest)


def next_token(digest: int) -> int:
    """Return the token that follows the prefix with this digest."""
    return (digest >> 7) % VOCAB


def continuation(tokens: list[int], count: int) -> list[int]:
    """Return the `count` tokens that follow `tokens`, as any schedule must produce them."""
    digest = SEED
    for token in tokens:
        digest = mix(digest, token)
    out: list[int] = []
    for _ in range(count):
        out.append(next_token(digest))
        digest = mix(digest, out[-1])
    return out


def draft(digest: int, position: int, accept: tuple[int, ...], width: int) -> list[int]:
    """Return the drafter's proposal after the token at `position`, whose prefix has `digest`.

    The first accept[position % len(accept)] tokens are right, the next is wrong, the rest is
    right for the wrong prefix: a real drafter's shape.
    """
    right = accept[position % len(accept)]
    out: list[int] = []
    for index in range(width):
        token = next_token(digest)
        if index == right:
            token = (token + 1) % VOCAB
        out.append(token)
        digest = mix(digest, token)
    return out


def expected_outputs(scenario: Scenario) -> dict[int, list[int]]:
    """Return, per request id, the output tokens an uninterrupted request must deliver."""
    limit = scenario.engine.max_model_len
    return {
        request.id: continuation(
            prompt_tokens(request), min(request.max_tokens, limit - request.prompt.length)
        )
        for request in scenario.requests
    }
