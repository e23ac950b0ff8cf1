"""Nouns: simulated executor.

vLLM's `EngineCore` owns the loop; this executor only answers it. Work is done at once and handed
over in finished futures, which the batch queue of async scheduling cannot tell from late ones.
"""

from concurrent.futures import Future
from typing import Any

from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds

from schedfuzz.workers.target import engine as seams

# More than any pool needs: num_gpu_blocks_override decides the number of blocks.
PLENTY = 1 << 40


class SimulatedExecutor(Executor):
    """Plays worker and model runner; the driver sets `drive` before the first step."""

    def _init_executor(self) -> None:
        self.drive: Any = None
        self._output: Any = None

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return [{"layer.0": seams.kv_spec(self.cache_config.block_size)}]

    def determine_available_memory(self) -> list[int]:
        return [PLENTY]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]

    def set_kv_cache_layout(self, layout_name: str) -> None:
        pass

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        pass

    def compile_or_warm_up_model(self) -> None:
        pass

    @property
    def max_concurrent_batches(self) -> int:
        return 2 if self.scheduler_config.async_scheduling else 1

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None,
        non_block: bool = False,
    ) -> Any:  # fmt: skip
        return []

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        ids, sampled = self.drive.execute(scheduler_output)
        if not ids:
            return _done(EMPTY_MODEL_RUNNER_OUTPUT) if non_block else EMPTY_MODEL_RUNNER_OUTPUT
        self._output = seams.runner_output(ids, sampled)
        return _done(None) if non_block else None

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return _done(self._output) if non_block else self._output

    def take_draft_token_ids(self) -> Any:
        return DraftTokenIds(*self.drive.runner.proposals())


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
