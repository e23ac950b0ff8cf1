"""Nouns: pooling seam: a model that answers a prompt with one vector instead of tokens."""

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam

TASK = "embed"


def _runner(engine: Engine) -> Arguments:
    return {"runner": "pooling"} if engine.model == "pooling" else {}


def _params(engine: Engine, request: Request, arguments: Arguments) -> None:
    if engine.model == "pooling":
        from vllm import PoolingParams

        arguments["sampling"] = {}
        arguments["pooling_params"] = PoolingParams(task=TASK)


POOLING_SEAMS: tuple[Seam, ...] = (Seam("model", _runner, request=_params),)
