"""Nouns: structured request: how the releases take a grammar and the state of the reasoning.

The grammar's text only names our request: the stub's and the compiler's rules follow from that.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import STOP
from schedfuzz.workers.target.seam import Arguments, Seam


def _structured(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.structured is None:
        return
    from vllm.sampling_params import StructuredOutputsParams

    text: dict[str, Any] = {request.structured.kind: str(request.id)}
    sampling = arguments["sampling"]
    sampling["structured_outputs"] = StructuredOutputsParams(**text)
    if request.structured.ends_after:
        sampling["stop_token_ids"] = [STOP]
    if engine.reasoning and request.structured.reasoning_end is None:
        arguments["reasoning_ended"] = True  # as for a chat template that switches it off


STRUCTURED_SEAMS: tuple[Seam, ...] = (Seam("structured", request=_structured),)
