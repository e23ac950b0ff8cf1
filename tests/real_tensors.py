"""Nouns: checks of the checkable model's tensors, to be run where torch is.

A script: it runs every `check_*` below and prints, per name, nothing or how it failed, as JSON.
`tests/test_real_tensors.py` runs it in a target's environment and reads the answer.
"""

import json
import sys
import traceback

import torch

from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.tokens import VOCAB
from schedfuzz.workers.target.real.code import LANES, LEVELS, codes, digests
from schedfuzz.workers.target.real.truth import Truth
from schedfuzz.workers.target.real.voice import Voice

LONGEST = 4096
LAYER = "layer"
# One family, so that both requests read the same up to position 19; the second is a session.
SCENARIO = decode(
    '{"engine":{"max_model_len":64,"num_blocks":9},"requests":['
    '{"id":3,"prompt":{"length":30,"shared":20},"max_tokens":9,"accept":[1]},'
    '{"id":5,"prompt":{"length":25,"shared":20},"max_tokens":4,'
    '"turns":[{"step":9,"length":3,"max_tokens":4},{"step":40,"length":0,"max_tokens":1}]}]}'
)


def content(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and positions as a request may have them."""
    tokens = torch.randint(0, 64, (count,), generator=torch.Generator().manual_seed(count))
    return tokens, torch.arange(count)


def check_codes_are_small_integers() -> None:
    value = codes(*content(LONGEST))
    assert value.shape == (LONGEST, LANES) and value.dtype == torch.float32
    assert torch.equal(value, value.round()) and value.min() == 0 and value.max() == LEVELS - 1


def check_the_mean_gives_back_the_exact_sum() -> None:
    """In whatever order the codes are added, up to the longest request."""
    value = codes(*content(LONGEST))
    for count in (1, 2, 3, 33, 100, 1023, 3000, LONGEST):
        exact = value[:count].to(torch.int64).sum(0)
        order = torch.randperm(count)
        for read in (value[:count].mean(0), value[order].mean(0),
                     (value[order] * (torch.ones(count, 1) / count)).sum(0)):  # fmt: skip
            assert torch.equal((read * count).round().to(torch.int64), exact), count


def check_no_two_contents_have_one_digest() -> None:
    """Of all tokens at the first 1024 positions."""
    tokens = torch.arange(64).repeat_interleave(1024)
    told = digests(codes(tokens, torch.arange(1024).repeat(64)).to(torch.int64))
    assert len(told.unique()) == len(tokens)


def check_one_wrong_position_shows_in_the_digest() -> None:
    tokens, positions = content(200)
    right = codes(tokens, positions).to(torch.int64)
    whole = right.sum(0)
    seen = {int(digests(whole[None]))}
    for at in range(200):
        other_token = codes(tokens[at : at + 1] ^ 1, positions[at : at + 1]).to(torch.int64)[0]
        shifted = codes(tokens[at : at + 1], positions[at : at + 1] + 1).to(torch.int64)[0]
        for wrong in (whole - right[at], whole - right[at] + other_token,
                      whole - right[at] + shifted, whole - right[at] + right[at - 1]):  # fmt: skip
            seen.add(int(digests(wrong[None])))
    assert len(seen) == 1 + 4 * 200


def check_a_window_reads_only_its_own_positions() -> None:
    truth = Truth(SCENARIO, {0, 7}, torch.device("cpu"))
    row = truth.index["3"]
    told = read_by("3", truth, range(64), 7)
    assert torch.equal(truth.own[7][row, 0], told)
    assert torch.equal(truth.own[0][row, 0], read_by("3", truth, range(64), 0))


def read_by(req_id: str, truth: Truth, positions: range, window: int) -> torch.Tensor:
    """Return the digests of a request's own content, summed up position by position."""
    from schedfuzz.workers.target.real.turns import turns

    request = next(r for r in SCENARIO.requests if str(r.id) == req_id)
    tokens = torch.tensor(turns(request, 64, 0)[0].tokens)
    value = codes(tokens, torch.arange(64)).to(torch.int64)
    rows = []
    for at in positions:
        first = max(0, at + 1 - window) if window else 0
        rows.append(value[first : at + 1].sum(0))
    return digests(torch.stack(rows))


def speaking(rows: list[int]) -> tuple[Voice, Truth]:
    """Return a voice whose forward's positions belong to the scenario's requests `rows`."""
    voice = Voice()
    truth = voice.learn(SCENARIO, {0}, torch.device("cpu"))
    voice._rows = lambda layer, count: torch.tensor(rows)  # type: ignore[method-assign]
    return voice, truth


def check_own_content_says_the_scenarios_tokens() -> None:
    voice, truth = speaking([0] * 5)
    at = torch.arange(28, 33)
    said = voice.speak(LAYER, at, {0: truth.own[0][0, 0, at]})
    assert said is not None and said[:, 0].tolist() == truth.says[0, 0, at].tolist()
    assert voice.misses == []


def check_foreign_content_says_another_token_and_is_noted() -> None:
    """The third row of the batch reads what the other request wrote; a padding row reads nothing.

    Noted is which of the request's own tokens of the step it was.
    """
    voice, truth = speaking([1, 0, 0, -1])
    at = torch.tensor([24, 29, 30, 0])
    read = torch.stack([truth.own[0][1, 0, 24], truth.own[0][0, 0, 29], truth.own[0][1, 0, 30],
                        torch.tensor(0)])  # fmt: skip
    said = voice.speak(LAYER, at, {0: read})
    assert said is not None
    own = [int(truth.says[1, 0, 24]), int(truth.says[0, 0, 29])]
    assert said[:2, 0].tolist() == own
    assert int(said[2, 0]) != int(truth.says[0, 0, 30]) and int(said[2, 0]) < VOCAB
    assert voice.misses == [("3", 1)]


def check_a_session_says_what_the_turn_it_read_says() -> None:
    """Both turns read the same up to the first one's output, which the second has as its prompt."""
    voice, truth = speaking([1, 1])
    second = int(truth.prompt[1, 1])
    at = torch.tensor([24, second - 1])
    said = voice.speak(LAYER, at, {0: torch.stack([truth.own[0][1, 0, 24],
                                                   truth.own[0][1, 1, second - 1]])})  # fmt: skip
    assert said is not None
    turns = [truth.says[1, 0, 24], truth.says[1, 1, second - 1]]
    assert said[:, 0].tolist() == [int(token) for token in turns]


def main() -> None:
    told = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                told[name] = ""
            except Exception:
                told[name] = traceback.format_exc()
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
