"""Nouns: real executor, reference, held rule.

vLLM's own executor for one process, with its worker and model runner. The simulated runner goes
along as the reference: it checks the scheduler's contract and says which tokens each step must
yield. What breaks while the contract was kept is the runner's fault.
"""

from typing import Any

from msgspec.structs import replace
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from schedfuzz.corpus.outputs import until_stop
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.tokens import STOP
from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.target.real.binding import bind
from schedfuzz.workers.target.real.told import wrong_logprobs, wrong_prompt_logprobs
from schedfuzz.workers.target.real.voice import VOICE
from schedfuzz.workers.target.real.worker import distributed_args, new_worker
from schedfuzz.workers.target.seam import Unsupported

# More than any pool needs: num_gpu_blocks_override decides the number of blocks.
PLENTY = 1 << 40
# Where a runner's code stands; sampling and drafting are parts of it.
RUNNER_MODULES = (
    "vllm.v1.worker", "vllm.v1.sample", "vllm.v1.spec_decode", "vllm.v1.attention",
    "vllm.model_executor",
)  # fmt: skip


class RealExecutor(UniProcExecutor):
    """Plays scheduler outputs on vLLM's worker; the driver makes one class per engine."""

    scenario_engine: Any = None
    drive: Any = None
    _held: BrokenRule | None = None
    check = staticmethod(limits.check)

    def _init_executor(self) -> None:
        VOICE.forget()
        self.driver_worker = new_worker(self)
        runner = self.driver_worker.worker.model_runner
        truth = VOICE.learn(self.drive.scenario, set(windows(self.scenario_engine)), runner.device)
        self._turns = {
            req_id: {length: turn for turn, length in enumerate(truth.lengths[row])}
            for req_id, row in truth.index.items()
        }
        self.binding = bind(runner)
        VOICE.batch = self.binding.batch

    def _distributed_args(self) -> tuple[str, int, int]:
        return distributed_args()

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """Return the KV specs of the worker's layers. Raises Unsupported."""
        specs: list[dict[str, Any]] = super().get_kv_cache_specs()
        sizes = {spec.block_size for worker in specs for spec in worker.values()}
        # 0.27 gives a window's layers blocks of a size of their own where no other layer has one.
        if self.scenario_engine.block_size not in sizes:
            raise Unsupported("engine.groups")
        return specs

    def initialize_from_config(self, kv_cache_configs: list[Any]) -> None:
        order = group_order(self.scenario_engine, kv_cache_configs[0].kv_cache_groups)
        self.drive.runner.kv.arrange(order)
        super().initialize_from_config(kv_cache_configs)

    def determine_available_memory(self) -> list[int]:
        return [PLENTY]

    def compile_or_warm_up_model(self) -> Any:
        return None

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        self._held = None
        VOICE.misses, VOICE.strays = [], []
        try:
            self.drive.execute(scheduler_output)
            if not scheduler_output.num_scheduled_tokens:
                self.drive.sample(None)
        except BrokenRule as broken:
            self._held = broken
        self._follow_turns()
        result = super().execute_model(scheduler_output, non_block)
        if self._held is not None:
            raise self._held
        self._check_context()
        return result

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        wanted: dict[str, list[int]] = {}
        over = self._over()
        try:
            ids, tokens, fields = self.drive.sample(grammar_output)
            wanted = {req_id: row for req_id, row in zip(ids, tokens, strict=True)
                      if req_id not in over}  # fmt: skip
        except BrokenRule as broken:
            self._held = broken
        result = super().sample_tokens(grammar_output, non_block)
        output = result.result() if non_block else result
        if self._held is not None:
            raise self._held
        self._check_output(output, wanted)
        self._check_told(output, ids, fields, wanted)
        self._adopt_drafts()
        return result

    def _over(self) -> set[str]:
        """Return the requests that sampled their stop token in a step that is still in flight."""
        states = self.drive.runner.states
        return {req_id for req_id, state in states.items() if STOP in state.outputs}

    def _follow_turns(self) -> None:
        for req_id, state in self.drive.runner.states.items():
            VOICE.turns[req_id] = self._turns[req_id].get(len(state.prompt), 0)

    def _adopt_drafts(self) -> None:
        """Have the reference verify what the real drafter proposed, whatever that was."""
        for req_id, row in self.binding.drafts().items():
            state = self.drive.runner.states.get(req_id)
            if state is not None:
                state.next_drafts = row

    def explained(self, found: Violation) -> Violation:
        """Return a crash with whose fault it is: the runner's if the contract was kept until then.

        Rules that the run went on from count as broken too.
        """
        kept = self._held is None and not self.drive.violations
        inside = found.function.startswith(RUNNER_MODULES)
        return replace(found, component="runner") if kept and inside else found

    def _check_context(self) -> None:
        """Check that all that was read up to each row's newest token was the request's own."""
        rows = {str(row.state.number): row for row in self.drive.runner.rows}
        for req_id, index in VOICE.misses:
            row = rows[req_id]
            position = row.start + index
            if position < row.end - len(row.drafts):
                detail = f"position {position} read content from the KV cache that is not its own"
                self._blame("runner-context", detail, row.state.number)

    def _check_output(self, output: Any, wanted: dict[str, list[int]]) -> None:
        got = dict(zip(output.req_ids, map(list, output.sampled_token_ids), strict=True))
        for req_id, tokens in wanted.items():
            if until_stop(got.get(req_id, [])) != until_stop(tokens):
                detail = f"the runner yields {got.get(req_id)}, its inputs give {tokens}"
                self._blame("runner-output", detail, int(req_id))

    def _check_told(
        self, output: Any, order: list[str], fields: dict[str, Any], wanted: dict[str, list[int]]
    ) -> None:
        """Check the logprobs of those who asked, row by row, as far as their tokens count."""
        states = self.drive.runner.states
        asked = {req_id: len(until_stop(tokens)) for req_id, tokens in wanted.items()
                 if states[req_id].request.logprobs and tokens}  # fmt: skip
        req_id, detail = wrong_logprobs(output, fields.get("logprobs"), order, asked)
        if not detail:
            req_id, detail = wrong_prompt_logprobs(output, fields.get("prompt_logprobs_dict", {}))
        if detail:
            self._blame("runner-logprobs", detail, int(req_id))

    def _blame(self, rule: str, detail: str, number: int) -> None:
        found = violation(rule, detail, self.drive.runner.step, number)
        raise BrokenRule(replace(found, component="runner"))


def windows(engine: Engine) -> list[int]:
    """Return the window of each of an engine's KV groups, 0 for full attention."""
    return [group.window for group in engine.groups] or [0]


def group_order(engine: Engine, groups: list[Any]) -> list[int]:
    """Return the index of our group for each of vLLM's. Raises Unsupported if they are others."""
    ours = windows(engine)
    theirs = [getattr(group.kv_cache_spec, "sliding_window", None) or 0 for group in groups]
    sizes = {group.kv_cache_spec.block_size for group in groups}
    if sorted(ours) != sorted(theirs) or sizes != {engine.block_size}:
        raise Unsupported("engine.groups")
    return [ours.index(window) for window in theirs]
