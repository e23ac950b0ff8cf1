"""Nouns: logprobs, prompt logprobs, row.

The simulated model's logprobs say where they belong: a row's first token is the token it is for and
its value is minus that token's position. So a client can tell rows that were cut at the wrong place
or taken from another request.
"""

from typing import TYPE_CHECKING, Any

from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.state import State

if TYPE_CHECKING:
    from schedfuzz.workers.target.runner import SimulatedRunner

Row = tuple[int, int]  # a token and its position
NO_ROW: Row = (0, -1)  # what stands where nothing was asked for


def lists(rows: list[Row], starts: list[int] | None) -> Any:
    """Return vLLM's LogprobsLists of a step's rows; `starts` is each request's first row."""
    from vllm.v1.outputs import LogprobsLists

    return LogprobsLists(*(part.numpy() for part in _columns(rows)), starts)


def tensors(rows: list[Row]) -> Any:
    """Return vLLM's LogprobsTensors of a prompt's rows."""
    from vllm.v1.outputs import LogprobsTensors

    return LogprobsTensors(*_columns(rows))


def _columns(rows: list[Row]) -> tuple[Any, Any, Any]:
    """Return token ids, logprobs and ranks: of each row's own token and of one other."""
    import torch

    ids = torch.tensor([[token, 0] for token, _ in rows], dtype=torch.int32).reshape(-1, 2)
    values = torch.tensor([[-position, -1e6] for _, position in rows], dtype=torch.float32)
    return ids, values.reshape(-1, 2), torch.zeros(len(rows), dtype=torch.int32)


def rows_of(ids: Any, values: Any) -> list[Row]:
    """Return the rows that arrays or tensors hold."""
    firsts = zip(ids[:, 0].tolist(), values[:, 0].tolist(), strict=True)
    return [(int(token), round(-value)) for token, value in firsts]


class Logprobs(Part):
    """The logprobs of sampled tokens, in the shape of either runner generation."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Return a row for each token of the batch if one of its requests asked for logprobs."""
        states = self.runner.states
        if not any(states[req_id].request.logprobs for req_id in samples):
            return {}
        drafts = output.scheduled_spec_decode_tokens
        rows: list[Row] = []
        starts = [0]
        for req_id, tokens in samples.items():
            first = states[req_id].known - len(tokens)
            more = [(token, first + index) for index, token in enumerate(tokens)]
            least = 1
            if self.runner.engine.model_runner == "v2":  # a row per verified token, kept or not
                least += len(drafts.get(req_id, ()))
            rows += more + [NO_ROW] * (least - len(more))
            starts.append(len(rows))
        return {"logprobs": lists(rows, starts if drafts else None)}


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
            rows[position - 1] = (state.prompt[position], position)
        if end >= len(state.prompt):
            self.complete[req_id] = tensors(self.gathering.pop(req_id))

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Hand over the prompts that this step completed."""
        complete, self.complete = self.complete, {}
        return {"prompt_logprobs_dict": complete} if complete else {}
