"""Nouns: logprobs, prompt logprobs, teller.

A logprob says for which token and position it was computed (`corpus.sampling`), on either runner.
So a client can tell rows that were cut at the wrong place, taken from another request or never
filled in.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from schedfuzz.corpus.sampling import Row, Sampler
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import contents, extend_digests, seed_of
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.rows import Row as Share
from schedfuzz.workers.target.state import State

if TYPE_CHECKING:
    from schedfuzz.workers.target.runner import SimulatedRunner

NO_ROW = Row(0, 1.0, 0, 1.0)  # what stands where nothing was asked for: no logprob is positive


def lists(rows: list[Row], starts: list[int] | None) -> Any:
    """Return vLLM's LogprobsLists of a step's rows; `starts` is each request's first row."""
    from vllm.v1.outputs import LogprobsLists

    return LogprobsLists(*(part.numpy() for part in _columns(rows)), starts)


def tensors(rows: list[Row]) -> Any:
    """Return vLLM's LogprobsTensors of a prompt's rows."""
    from vllm.v1.outputs import LogprobsTensors

    return LogprobsTensors(*_columns(rows))


def _columns(rows: list[Row]) -> tuple[Any, Any, Any]:
    """Return token ids, logprobs and ranks: of each row's own token and of the likeliest one."""
    import torch

    ids = torch.tensor([(row.token, row.likeliest) for row in rows], dtype=torch.int32)
    values = torch.tensor([(row.logprob, row.most) for row in rows], dtype=torch.float32)
    ranks = torch.zeros(len(rows), dtype=torch.int32)
    return ids.reshape(-1, 2), values.reshape(-1, 2), ranks


def rows_of(ids: Any, values: Any) -> list[Row]:
    """Return the rows that arrays or tensors hold."""
    pairs = zip(ids[:, :2].tolist(), values[:, :2].tolist(), strict=True)
    return [Row(token, own, likeliest, most) for (token, likeliest), (own, most) in pairs]


class Teller:
    """Knows the rows of one turn of a request, whose output follows the tokens `prompt`."""

    def __init__(self, request: Request, prompt: list[int]) -> None:
        self._prompt = prompt
        self._sampler = Sampler(request, prompt)
        self._seed = seed_of(request.lora)
        self._digests: list[int] = []
        extend_digests(self._digests, contents(request, prompt), self._seed)

    def tell(self, tokens: Iterable[int]) -> list[Row]:
        """Return the rows of the output's next tokens."""
        rows = []
        for token in tokens:
            position = len(self._digests) - 1
            mask = self._sampler.mask(position)
            rows.append(self._sampler.row(token, self._digests[-1], position, mask))
            extend_digests(self._digests, [token], self._seed)
        return rows

    def tell_prompt(self) -> list[Row]:
        """Return the rows of the prompt's tokens but the first."""
        return [
            self._sampler.row(token, self._digests[position], position)
            for position, token in enumerate(self._prompt[1:])
        ]


class Logprobs(Part):
    """The logprobs of sampled tokens, in the shape of either runner generation."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Return a row for each token of the batch if one of its requests asked for logprobs."""
        if not any(row.state.request.logprobs for row in self.runner.rows):
            return {}
        rows: list[Row] = []
        starts = [0]
        for row, tokens in zip(self.runner.rows, samples.values(), strict=True):
            more = self._told(row, tokens)
            least = 1
            if self.runner.engine.model_runner == "v2":  # a row per verified token, kept or not
                least += len(row.drafts)
            rows += more + [NO_ROW] * (least - len(more))
            starts.append(len(rows))
        drafts = output.scheduled_spec_decode_tokens
        return {"logprobs": lists(rows, starts if drafts else None)}

    def _told(self, row: Share, tokens: list[int]) -> list[Row]:
        state, masks = row.state, self.runner.grammar_rows
        return [
            state.sampler.row(token, state.digests[at], at, masks.mask(row, at))
            for at, token in enumerate(tokens, row.newest)
        ]


class PromptLogprobs(Part):
    """The logprobs of prompts, gathered chunk by chunk and handed over with the last chunk."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner
        self.gathering: dict[str, list[Row]] = {}
        self.complete: dict[str, Any] = {}

    def begin(self, output: Any) -> None:
        """Start anew with each request that the runner is given; what has outputs is past it."""
        for req_id in output.finished_req_ids:
            self.gathering.pop(req_id, None)
        for data in output.scheduled_new_reqs:
            length = len(data.prompt_token_ids)
            tokens = getattr(data, "prefill_token_ids", None)
            wanted = self.runner.states[data.req_id].request.prompt_logprobs
            if wanted and (tokens is None or len(tokens) == length):
                self.gathering[data.req_id] = [NO_ROW] * (length - 1)
            else:
                self.gathering.pop(data.req_id, None)

    def attend(self, state: State, start: int, end: int) -> None:
        """Fill the rows of a chunk: position p tells of the token at p + 1."""
        req_id = str(state.number)
        rows = self.gathering.get(req_id)
        if rows is None:
            return
        for position in range(start + 1, min(end + 1, len(state.prompt))):
            at = position - 1
            rows[at] = state.sampler.row(state.prompt[position], state.digests[at], at)
        if end >= len(state.prompt):
            self.complete[req_id] = tensors(self.gathering.pop(req_id))

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Hand over the prompts that this step completed."""
        complete, self.complete = self.complete, {}
        return {"prompt_logprobs_dict": complete} if complete else {}
