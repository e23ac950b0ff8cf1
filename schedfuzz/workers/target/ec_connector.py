"""Nouns: scripted EC connector: vLLM's connector of encoder outputs, played by an embedding source.

vLLM loads it by the name of this module, so nothing else imports it.
"""

from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata

from schedfuzz.workers.target.ec_source import Source


class Loads(ECConnectorMetadata):
    """What a step loads into the runner's encoder cache: picture -> encoder tokens."""

    def __init__(self, loads: dict[str, int]) -> None:
        self.loads = loads


class ScriptedECConnector(ECConnectorBase):
    """The scheduler's side; the worker's is the simulated encoder. `source` is set before use."""

    source: Source

    def has_cache_item(self, identifier: str) -> bool:
        return self.source.arrived(identifier)

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        return self.source.available(request.request_id, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self.source.take(request.request_id, index)

    def update_state_after_free(self, request: Any, index: int) -> None:
        self.source.give_up(request.request_id, index)

    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        return Loads(self.source.loads(scheduler_output.free_encoder_mm_hashes))

    def start_load_caches(self, encoder_cache: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the simulated encoder loads")

    def save_caches(self, encoder_cache: Any, mm_hash: str, **kwargs: Any) -> None:
        raise NotImplementedError("the simulated encoder saves nothing")
