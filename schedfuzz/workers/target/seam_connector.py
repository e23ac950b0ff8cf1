"""Nouns: the KV connector's seam: vLLM's KVTransferConfig and each request's script."""

import functools
from typing import Any

import msgspec

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported

MODULE = "schedfuzz.workers.target.connector"
HEAD_SIZE, FLOAT_BYTES = 8, 4  # as the simulated layer has them


def _host_bytes(engine: Engine) -> int:
    """Return the size of a host pool of `offload_blocks`: one layer's keys and values a block."""
    from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

    page = 2 * engine.block_size * HEAD_SIZE * FLOAT_BYTES
    unit = getattr(CPUOffloadingSpec, "BLOCK_SIZE_ALIGNMENT", 1)
    assert engine.connector is not None
    return engine.connector.offload_blocks * -(-page // unit) * unit


def _transfer(engine: Engine) -> Arguments:
    connector = engine.connector
    if connector is None:
        return {}
    from vllm.config import KVTransferConfig

    values: dict[str, Any] = {
        "kv_role": connector.role,
        "kv_load_failure_policy": connector.failure_policy,
        "engine_id": "schedfuzz",
    }
    if connector.kind == "offloading":
        values["kv_connector"] = "OffloadingConnector"
        values["kv_connector_extra_config"] = {"cpu_bytes_to_use": _host_bytes(engine)}
    else:
        single = connector.single_group
        values["kv_connector"] = "SingleGroupConnector" if single else "ScriptedConnector"
        values["kv_connector_module_path"] = MODULE
        values["kv_connector_extra_config"] = {"restores_state": connector.restores_state}
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
