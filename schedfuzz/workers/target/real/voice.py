"""Nouns: voice, row, miss, heard, stray.

What the checkable model says: the scenario's truth where the content that attention read is the
request's own, another token elsewhere. vLLM makes its models itself, so each process has one voice.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.tokens import VOCAB
from schedfuzz.workers.target.real.truth import Truth

# A request's id, and which token of its share of the step read foreign content.
Miss = tuple[str, int]
# The same, and by how much the control's hidden state is off there (`control`).
Stray = tuple[str, int, float]


class Heard(NamedTuple):
    """What a forward pass read, tensors [n]: the request's index (-1: padding), turn, position.

    `hit` says where what was read is the request's own.
    """

    rows: Any
    turn: Any
    positions: Any
    hit: Any


class Voice:
    """The executor sets `batch`, which returns the request ids of the batch's rows, and `turns`.

    `turns` has the present turn of each session; `misses` and `strays` are read by the executor,
    `heard` by a control.
    """

    def __init__(self) -> None:
        self.truth: Truth | None = None
        self.batch: Callable[[], Sequence[str]] = tuple
        self.turns: dict[str, int] = {}
        self.misses: list[Miss] = []
        self.strays: list[Stray] = []
        self.heard: Heard | None = None
        self.passes = 0

    def learn(self, scenario: Scenario, windows: set[int], device: Any) -> Truth:
        """Take over a scenario's truth and return it."""
        self.truth = Truth(scenario, windows, device)
        self.turns, self.misses, self.strays = {}, [], []
        return self.truth

    def forget(self) -> None:
        """Know nothing: what vLLM runs for its own purposes between scenarios says zeros."""
        self.truth, self.batch = None, tuple

    def speak(self, layer: str, positions: Any, read: dict[int, Any]) -> Any | None:
        """Return float32 [n, 2]: what is said after each position, and what plainly.

        `read` holds the digests [n] that were read, per window. None when nothing is known.
        """
        self.passes = 0
        rows = self._rows(layer, len(positions))
        if self.truth is None or rows is None:
            return None
        here = positions.clamp(0, self.truth.says.shape[-1] - 1)
        own = [self.truth.own[window][rows, :, here] == digests[:, None]
               for window, digests in read.items()]  # fmt: skip
        hits = torch.stack(own).all(0)
        turn, hit = self._turn(rows, here, hits), hits.any(1)
        self._note(rows, positions, hit)
        self.heard = Heard(rows, turn, here, hit)
        said = self.truth.says[rows, turn, here]
        foreign = (said + 1 + next(iter(read.values())) % (VOCAB - 1)) % VOCAB
        plain = torch.where(hit, self.truth.plain[rows, turn, here], foreign)
        return torch.stack((torch.where(hit, said, foreign), plain), dim=1).to(torch.float32)

    def propose(self, layer: str, positions: Any) -> Any | None:
        """Return float32 [n, 2]: the draft of this pass of the drafter, twice.

        The first pass after a `speak` is at the newest tokens, each later one a position on. A
        drafter is told what to propose and not what it reads: its cache may have holes by design,
        and what it says only decides how many drafts are accepted.
        """
        rows = self._rows(layer, len(positions))
        if self.truth is None or rows is None:
            return None
        newest = (positions - self.passes).clamp(0, self.truth.says.shape[-1] - 1)
        turns = [self.turns.get(req_id, 0) for req_id in self.truth.index]
        turn = torch.tensor(turns, device=positions.device)[rows]
        index = min(self.passes, self.truth.drafts.shape[-1] - 1)
        self.passes += 1
        said = self.truth.drafts[rows, turn, newest, index]
        return torch.stack((said, said), dim=1).to(torch.float32)

    def _rows(self, layer: str, count: int) -> Any | None:
        """Return the index of the request of each position, -1 for padding; None in no scenario."""
        from vllm.forward_context import get_forward_context

        metadata = get_forward_context().attn_metadata
        batch = self.batch()
        if self.truth is None or not isinstance(metadata, dict) or not batch:
            return None
        starts = metadata[layer].query_start_loc[: len(batch) + 1]
        index = torch.tensor([self.truth.index[req_id] for req_id in batch], device=starts.device)
        rows = index.repeat_interleave((starts[1:] - starts[:-1]).to(torch.int64))
        return torch.nn.functional.pad(rows, (0, count - len(rows)), value=-1)

    def _turn(self, rows: Any, here: Any, hits: Any) -> Any:
        """Return the turn [n] whose content was read, one that speaks there if there is one."""
        assert self.truth is not None
        depth = hits.shape[1]
        speaks = here[:, None] + 1 >= self.truth.prompt[rows]
        rank = torch.arange(1, depth + 1, device=hits.device) + depth * speaks
        return (rank * hits).argmax(1)

    def _note(self, rows: Any, positions: Any, hit: Any) -> None:
        """Note what read foreign content, but for what stands behind a stop token."""
        assert self.truth is not None
        ids = list(self.truth.index)
        wanted = (rows >= 0) & (positions < self.truth.end[rows].max(1).values)
        missed = (~hit & wanted).nonzero().flatten().tolist()
        owners = rows.tolist() if missed else []
        for at in missed:
            self.misses.append((ids[owners[at]], at - owners.index(owners[at])))


VOICE = Voice()
