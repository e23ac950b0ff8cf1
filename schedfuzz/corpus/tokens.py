"""Nouns: prompt tokens, contents, prefix digests, continuation, drafts, grammar.

The key insight: the model is a pure function. The digest of a prefix decides its next token, so
whatever the schedule, a request's output must come out the same, and a KV slot can be checked by
the digest of the prefix it was written for. Python's own `hash` is salted per process and is not
used.
"""

from collections.abc import Callable, Sequence

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.scenario import Request

MASK = (1 << 62) - 1
SEED = 0x1B873593
VOCAB = 32  # small, so that the drafter's and vLLM's placeholder token 0 is sometimes right
# Tokens with a meaning of their own, beyond those that a digest gives; the model knows 64.
STOP = 40
IMAGE = 41
REASONING_END = 42
POISON = 43  # computed from KV that failed to load

# (digest of a prefix, its newest position) -> the token that the model says next
Say = Callable[[int, int], int]
# (digest of a prefix, its newest position, the output so far) -> the token that is sampled next
Pick = Callable[[int, int, Sequence[int]], int]


def mix(digest: int, token: int) -> int:
    """Return the 62-bit digest of a prefix extended by one token (multiply-xorshift)."""
    value = (digest ^ (token + 0x9E3779B9)) * 0x2545F4914F6CDD1D & MASK
    return value ^ (value >> 29)


def prompt_tokens(request: Request) -> list[int]:
    """Return the prompt's token ids: the family's part, then the request's own part.

    Where an image stands there are placeholders.
    """
    prompt = request.prompt
    shared = prompt.length if prompt.shared is None else prompt.shared
    family = mix(SEED, prompt.family)
    own = mix(mix(SEED, 7_777_777), request.id)
    tokens = [
        mix(family if position < shared else own, position) % VOCAB
        for position in range(prompt.length)
    ]
    for image in request.images:
        end = min(image.offset + image.length, prompt.length)
        tokens[image.offset : end] = [IMAGE] * (end - image.offset)
    return tokens


def picture(image: Image) -> list[int]:
    """Return what stands for each piece of a picture, in the order of its placeholders."""
    name = mix(mix(SEED, 6_000_000 + image.item), image.length)
    if image.name is not None:
        name = mix(SEED, 13_000_000 + image.name)
    return [mix(name, index) for index in range(image.length)]


def contents(request: Request, tokens: list[int]) -> list[int]:
    """Return what the model reads at each of the positions: the tokens and the pictures.

    An encoder-decoder model reads its picture from the first position on.
    """
    if not request.images:
        return tokens
    read = list(tokens)
    for image in request.images:
        end = min(image.offset + image.length, len(tokens))
        read[image.offset : end] = picture(image)[: end - image.offset]
    return read


def extend_digests(digests: list[int], contents: list[int], seed: int = SEED) -> None:
    """Append the digest after each of `contents` to `digests` (entry p covers positions 0..p).

    A position's content is its token, or what stands for an image's piece.
    """
    digest = digests[-1] if digests else seed
    for content in contents:
        digest = mix(digest, content)
        digests.append(digest)


def seed_of(lora: int) -> int:
    """Return the digest before the first position: each LoRA adapter is a model of its own."""
    return mix(SEED, 5_000_000 + lora) if lora else SEED


def next_token(digest: int) -> int:
    """Return the token that follows the prefix with this digest."""
    return (digest >> 7) % VOCAB


def speaker(request: Request, prompt_length: int) -> Say:
    """Return how the request's model speaks after a prompt of `prompt_length` tokens.

    What sampling makes of it is not looked at here: see `sampling.Sampler`.
    """
    plain = plain_speaker(request, prompt_length)
    stop = None if request.stop_at is None else prompt_length + request.stop_at
    marker = -1
    if request.structured is not None and request.structured.reasoning_end is not None:
        marker = prompt_length + request.structured.reasoning_end

    def say(digest: int, position: int) -> int:
        if position + 1 == marker:
            return REASONING_END
        if stop is not None and position + 1 >= stop:
            return STOP
        return plain(digest, position)

    return say


def plain_speaker(request: Request, prompt_length: int) -> Say:
    """Return how the request's model speaks where it says no token with a meaning of its own."""
    loop = request.repetition
    if loop is None:
        return lambda digest, _: next_token(digest)
    said_over = mix(SEED, 12_000_000 + request.id)
    first = prompt_length + loop.start

    def say(digest: int, position: int) -> int:
        if position + 1 < first:
            return next_token(digest)
        return mix(said_over, (position + 1 - first) % loop.period) % VOCAB

    return say


def grammar_start(request: Request) -> int:
    """Return the index of the first output token that the request's grammar is for."""
    structured = request.structured
    if structured is None or structured.reasoning_end is None:
        return 0
    return structured.reasoning_end + 1


def allowed(request: Request, count: int) -> int:
    """Return the tokens, as bits, that the request's grammar accepts after `count` tokens.

    About half of the plain ones; once it has its `ends_after` tokens the stop token alone.
    """
    structured = request.structured
    if structured is not None and structured.ends_after and count >= structured.ends_after:
        return 1 << STOP
    random = mix(mix(SEED, 11_000_000 + request.id), count) >> 9
    return random & ((1 << VOCAB) - 1) | 1 << count % VOCAB


def first_allowed(mask: int, token: int) -> int:
    """Return the first token at or after `token`, cyclically, of a mask that is not empty."""
    later = mask >> token << token or mask
    return (later & -later).bit_length() - 1


def continuation(tokens: list[int], count: int) -> list[int]:
    """Return the `count` tokens that follow `tokens` by digest alone."""
    return spoken(lambda digest, *_: next_token(digest), tokens, count)


def spoken(pick: Pick, contents: list[int], count: int, seed: int = SEED) -> list[int]:
    """Return the `count` tokens that follow `contents`, as any schedule must produce them."""
    digests: list[int] = []
    extend_digests(digests, contents, seed)
    return spoken_on(pick, digests[-1], len(contents) - 1, count)


def spoken_on(
    pick: Pick, digest: int, position: int, count: int, before: Sequence[int] = ()
) -> list[int]:
    """Return the `count` tokens that follow `position`, whose prefix has `digest`."""
    output = list(before)
    for at in range(position, position + count):
        output.append(pick(digest, at, output))
        digest = mix(digest, output[-1])
    return output[len(before) :]


def draft(
    pick: Pick, digest: int, position: int, accept: tuple[int, ...], width: int,
    before: Sequence[int],
) -> list[int]:  # fmt: skip
    """Return the drafter's proposal after the token at `position`, whose prefix has `digest`.

    The first accept[position % len(accept)] tokens are right, the next is wrong, the rest is
    right for the wrong prefix: a real drafter's shape. `before` is the output so far.
    """
    right = accept[position % len(accept)]
    output = list(before)
    for index in range(width):
        token = pick(digest, position + index, output)
        if index == right:
            token = (token + 1) % VOCAB
        output.append(token)
        digest = mix(digest, token)
    return output[len(before) :]
