"""Nouns: LoRA seam: adapters as vLLM names them."""

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam


def _adapters(engine: Engine) -> Arguments:
    return {"enable_lora": True, "max_loras": engine.max_loras} if engine.max_loras else {}


def _adapter(engine: Engine, request: Request, arguments: Arguments) -> None:
    if not request.lora:
        return
    from vllm.lora.request import LoRARequest

    name = f"adapter-{request.lora}"
    arguments["lora_request"] = LoRARequest(name, request.lora, name)


LORA_SEAMS: tuple[Seam, ...] = (Seam("max_loras", _adapters, request=_adapter),)
