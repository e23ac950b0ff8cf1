"""Nouns: simulated executor.

vLLM's `EngineCore` owns the loop; this executor only answers it. Work is done at once and handed
over in finished futures, which the batch queue of async scheduling cannot tell from late ones.
"""

from concurrent.futures import Future
from typing import Any

from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, DraftTokenIds

from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target import engine as seams
from schedfuzz.workers.target.checkpoints import placing
from schedfuzz.workers.target.seam_pooling import TASK
from schedfuzz.workers.target.specs import group_order, kv_specs

# More than any pool needs: num_gpu_blocks_override decides the number of blocks.
PLENTY = 1 << 40


class SimulatedExecutor(Executor):
    """Plays worker and model runner; the driver makes one class per engine."""

    # The scenario's engine and the driver, which EngineCore's constructor cannot pass on.
    scenario_engine: Any = None
    drive: Any = None
    supported_tasks = ("generate", TASK)

    @staticmethod
    def check(scenario: Any) -> None:
        """Raise Unsupported for a scenario that this runner cannot play: it plays all."""

    def explained(self, found: Violation) -> Violation:
        """Return a crash as it is: there is only the scheduler to blame."""
        return found

    def _init_executor(self) -> None:
        pass

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        return [kv_specs(self.scenario_engine, self.cache_config.block_size)]

    def determine_available_memory(self) -> list[int]:
        return [PLENTY]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]

    def set_kv_cache_layout(self, layout_name: str) -> None:
        pass

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        order = group_order(self.scenario_engine, kv_cache_configs[0].kv_cache_groups)
        kv = self.drive.runner.kv
        kv.arrange(order)
        kv.zeroes = bool(kv_cache_configs[0].needs_kv_cache_zeroing)
        engine = self.scenario_engine
        alignment = engine.prefill_checkpoint_alignment
        for _, group in kv.recurrent if alignment else ():
            group.place = placing(
                self.vllm_config, kv_cache_configs[0], alignment, engine.block_size
            )

    def compile_or_warm_up_model(self) -> None:
        pass

    @property
    def max_concurrent_batches(self) -> int:
        return int(self.vllm_config.max_concurrent_batches)

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None,
        non_block: bool = False,
    ) -> Any:  # fmt: skip
        if method == "reset_encoder_cache":
            for part in self.drive.runner.parts:
                part.reset_encoder_cache()
        return []

    @property
    def _pools(self) -> bool:
        return bool(self.scenario_engine.model == "pooling")

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        self.drive.execute(scheduler_output)
        at_once = not scheduler_output.num_scheduled_tokens or self._pools
        output = self._sample(None) if at_once else None
        return _done(output) if non_block else output

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        output = self._sample(grammar_output)
        return _done(output) if non_block else output

    def _sample(self, grammar_output: Any) -> Any:
        ids, sampled, fields = self.drive.sample(grammar_output)
        if not (ids or fields):
            return EMPTY_MODEL_RUNNER_OUTPUT
        return seams.runner_output(ids, sampled, fields)

    def take_draft_token_ids(self) -> Any:
        proposed = self.drive.runner.proposed
        return None if proposed is None else DraftTokenIds(*proposed)


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
