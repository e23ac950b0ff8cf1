"""Nouns: the KV connector's seam: vLLM's KVTransferConfig and each request's script."""

import functools
from typing import Any

import msgspec

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported

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


@functools.cache
def reports_failures() -> bool:
    """Return whether the release takes the failure of a whole reception."""
    from vllm.v1.outputs import KVConnectorOutput

    return "failed_recving" in KVConnectorOutput.__dataclass_fields__


def _script(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.external is not None:
        if request.external.fails and len(engine.groups) > 1 and not reports_failures():
            raise Unsupported("requests.external.fails")  # failed blocks need one group
        extra = arguments["sampling"].setdefault("extra_args", {})
        extra["kv_transfer_params"] = msgspec.structs.asdict(request.external)


CONNECTOR_SEAMS: tuple[Seam, ...] = (Seam("connector", _transfer, request=_script),)
