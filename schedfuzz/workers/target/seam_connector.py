"""Nouns: the KV connector's seam: vLLM's KVTransferConfig and each request's script."""

from typing import Any

import msgspec

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam

MODULE = "schedfuzz.workers.target.connector"


def _transfer(engine: Engine) -> Arguments:
    connector = engine.connector
    if connector is None:
        return {}
    from vllm.config import KVTransferConfig

    values: dict[str, Any] = {
        "kv_connector": "ScriptedConnector",
        "kv_connector_module_path": MODULE,
        "kv_connector_extra_config": {"restores_state": connector.restores_state},
        "kv_role": connector.role,
        "kv_load_failure_policy": connector.failure_policy,
        "engine_id": "schedfuzz",
    }
    return {"kv_transfer_config": KVTransferConfig(**values)}


def _script(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.external is not None:
        extra = arguments["sampling"].setdefault("extra_args", {})
        extra["kv_transfer_params"] = msgspec.structs.asdict(request.external)


CONNECTOR_SEAMS: tuple[Seam, ...] = (Seam("connector", _transfer, request=_script),)
