"""Nouns: scripted connector, script, orders.

The scheduler's half of a KV connector whose remote side is written in the requests. vLLM loads it
as it loads any connector from outside; what it decides reaches the worker's half
(`connector_part`) with the step, as vLLM's connector metadata. It answers like a careful one: a
second lookup of the same request is answered in whole blocks, for a full hit of one token would be
recomputed and asked for again for ever.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from schedfuzz.workers.target.transfers import Handoff, Load, Tables

# The ends after which vLLM waits for a connector that keeps the blocks.
NATURAL_ENDS = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")


class Orders(KVConnectorMetadata):
    """What happened since the step before; `processed` counts the outputs the scheduler took in.

    `undecided` are the requests whose lookup was put off in this step.
    """

    def __init__(
        self, loads: list[Load], handoffs: list[Handoff], undecided: set[str], processed: int
    ) -> None:
        self.loads = loads
        self.handoffs = handoffs
        self.undecided = undecided
        self.processed = processed


class _Memory:
    """What the connector remembers of one request."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.put_off: int = script.get("asks_later", 0)
        self.loads = 0
        self.start = 0


class SingleGroupConnector(KVConnectorBase_V1):
    """Follows each request's script, which comes as its `kv_transfer_params`.

    It is made as connectors were before there were KV groups.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._restores_state = bool(extra.get("restores_state"))
        self._block_size: int = vllm_config.cache_config.block_size
        self._memories: dict[str, _Memory] = {}
        self._loads: list[Load] = []
        self._handoffs: list[Handoff] = []
        self._undecided: set[str] = set()
        self._processed = 0

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return self._restores_state

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        script = request.kv_transfer_params or {}
        memory = self._memories.setdefault(request.request_id, _Memory(script))
        if memory.put_off:
            memory.put_off -= 1
            self._undecided.add(request.request_id)
            return None, False
        memory.start = num_computed_tokens
        found = self._found(script, memory) - num_computed_tokens
        return (found, script["load_async"]) if found > 0 else (0, False)

    def _found(self, script: dict[str, Any], memory: _Memory) -> int:
        """Return how many of the request's first tokens the remote side offers this time."""
        tokens: int = script.get("tokens", 0)
        if not memory.loads:
            return tokens
        return 0 if script["once"] else tokens // self._block_size * self._block_size

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return tuple(range(len(self._kv_cache_config.kv_cache_groups)))

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if not num_external_tokens:
            return
        memory = self._memories[request.request_id]
        tables = tuple(list(table) for table in blocks.get_block_ids())
        end = memory.start + num_external_tokens
        is_async = request.kv_transfer_params["load_async"]
        first = not memory.loads
        self._loads.append(Load(request.request_id, tables, memory.start, end, is_async, first))
        memory.loads += 1

    def build_connector_meta(self, scheduler_output: Any) -> Orders:
        orders = Orders(self._loads, self._handoffs, self._undecided, self._processed)
        self._loads, self._handoffs, self._undecided = [], [], set()
        return orders

    def update_connector_output(self, connector_output: Any) -> None:
        self._processed += 1

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return self.finished(request, (block_ids,))

    def finished(self, request: Any, block_ids: Tables) -> tuple[bool, None]:
        """Take over the blocks of a request that ended; return whether they are kept."""
        script = request.kv_transfer_params or {}
        kept = request.status.name in NATURAL_ENDS and script.get("send_steps", 0) > 0
        tables = tuple(list(table) for table in block_ids)
        computed, tokens = request.num_computed_tokens, request.num_tokens
        self._handoffs.append(Handoff(request.request_id, tables, computed, tokens, kept))
        self._memories.pop(request.request_id, None)
        return kept, None

    # -- the worker's half is played by `connector_part` ------------------------------------------

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def wait_for_layer_load(self, layer_name: str) -> None:
        raise NotImplementedError

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def wait_for_save(self) -> None:
        raise NotImplementedError


class ScriptedConnector(SingleGroupConnector, SupportsHMA):
    """The same for every KV group."""

    def request_finished_all_groups(self, request: Any, block_ids: Tables) -> tuple[bool, None]:
        return self.finished(request, block_ids)
