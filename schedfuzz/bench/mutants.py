"""Nouns: mutants bench, mutant's process.

Which mutants are tried, and with which processes: the original runs all the time, and the next
mutant's process starts while one is tried, for importing vLLM costs more than most kills.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from schedfuzz.bench.child import Stopping
from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.mutant_trial import Limits, MutantTrial
from schedfuzz.bench.mutation import Mutation, mutations, transform
from schedfuzz.bench.reference import Reference
from schedfuzz.bench.table import module_source
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import parse_target

MODULES = {
    name.rpartition(".")[2]: f"vllm.v1.core.{name}"
    for name in (
        "sched.scheduler", "sched.async_scheduler", "sched.request_queue", "sched.utils",
        "kv_cache_manager", "kv_cache_coordinator", "single_type_kv_cache_manager", "block_pool",
    )
}  # fmt: skip
# What no engine of the simulated runner can tell, and why: functions (by their beginning), and
# expressions (by a word in them).
OUT_OF_REACH = {
    ("HiSparse", "_HiSparse", "BlockPool._notify_reuse", "BlockPool.unpin_blocks"):
        "vLLM refuses HiSparse, the only one to run them, without NVIDIA CUDA",
}  # fmt: skip
CONSTANT = {
    re.compile(r"\b[dp]cp_(world_size|rank)\b"):
        "there are no context-parallel ranks: what asks for their number is constant",
}  # fmt: skip
CPU_SECONDS = 5.0  # of one scenario: many mutants spin
WALL_SECONDS = 30.0


def sample(environment: Environment, modules: Sequence[str], seed: int) -> list[Mutation]:
    """Return every mutation of the modules (keys of MODULES) in an order that `seed` decides.

    Those of what is out of reach are among them: see `within_reach`.
    """
    found = [
        mutation
        for name in modules
        for mutation in mutations(MODULES[name], module_source(environment, MODULES[name]))
    ]
    Random(seed).shuffle(found)
    return found


def within_reach(mutations: Sequence[Mutation]) -> tuple[list[Mutation], dict[str, int]]:
    """Return the mutations that some scenario may run, and how many are not, by the reason."""
    kept: list[Mutation] = []
    left_out: dict[str, int] = {}
    for mutation in mutations:
        name, text = mutation.function, mutation.original
        reasons = [why for names, why in OUT_OF_REACH.items() if name.startswith(names)]
        reasons += [why for word, why in CONSTANT.items() if word.search(text)]
        reason = next(iter(reasons), None)
        if reason is None:
            kept.append(mutation)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
    return kept, left_out


class MutantsBench:
    """Runs mutants against their original, one at a time, and fills a ledger."""

    def __init__(
        self, release: str, environment: Environment, folder: Path, log: Path, ledger: Ledger,
        limits: Limits, say: Callable[[str], None], stopping: Stopping,
    ) -> None:  # fmt: skip
        """Mutants are written into `folder`, a file each and its log; `log` is the original's."""
        self.release = release
        self.environment = environment
        self.folder = folder
        self.log = log
        self.ledger = ledger
        self.limits = limits
        self.say = say
        self.stopping = stopping

    def run(self, chosen: Sequence[Mutation], scenarios: Iterable[Scenario]) -> None:
        """Try every chosen mutant that has no result yet, until done or asked to stop."""
        left = [mutation for mutation in chosen if mutation.name not in self.ledger]
        if not left:
            return
        original = self._process(self.release, self.log)
        try:
            original.spawn()
            original.wait_ready()
            self.say(f"{self.release}: runs the scenarios that mutants are judged by")
            reference = Reference(original)
            reference.fill(scenarios, self.stopping)
            self.say(f"{len(reference.entries)} scenarios, {len(left)} mutants to try")
            self._try(left, reference)
        finally:
            original.stop()

    def _process(self, target: str, log: Path, **options: Any) -> TargetProcess:
        return TargetProcess(parse_target(target), self.environment, log, **options)

    def _try(self, chosen: Sequence[Mutation], reference: Reference) -> None:
        trials = []
        for mutation in chosen:
            trial = MutantTrial(mutation, reference, self.limits, self.stopping)
            if trial.entries:
                trials.append(trial)
            elif not self.stopping():  # else the reference may be cut short
                self._note(mutation, {"status": "not reached"})
        waiting: list[TargetProcess] = []
        try:
            for number, trial in enumerate(trials):
                if self.stopping():
                    return
                while len(waiting) < 2 and number + len(waiting) < len(trials):
                    waiting.append(self._spawned(trials[number + len(waiting)].mutation))
                self._one(trial, waiting.pop(0))
        finally:
            for process in waiting:
                process.stop()

    def _one(self, trial: MutantTrial, process: TargetProcess) -> None:
        result: dict[str, Any] = {"status": "killed", "by": "start", "executions": 0}
        try:
            process.wait_ready()
            result = {"status": "not run"}
            result = trial.run(process)
        except (InputError, InfraError):
            pass  # it cannot even start, or not again
        finally:
            process.stop()
        if result["status"] == "killed" or not self.stopping():
            self._note(trial.mutation, result)

    def _spawned(self, mutation: Mutation) -> TargetProcess:
        file = self.folder / file_name(mutation)
        file.write_text(transform(mutation, self.release), encoding="utf-8")
        process = self._process(
            f"{self.release}+{file}:mutate", file.with_suffix(".log"), coverage=False,
            wall_seconds=WALL_SECONDS, cpu_seconds=CPU_SECONDS,
        )  # fmt: skip
        process.spawn()
        return process

    def _note(self, mutation: Mutation, result: dict[str, Any]) -> None:
        facts = {
            "module": mutation.module, "function": mutation.function, "line": mutation.span[0],
            "operator": mutation.operator, "what": mutation.what,
        }  # fmt: skip
        self.ledger.put(mutation.name, facts | result)
        by = f" by {result['by']}" if "by" in result else ""
        self.say(f"{result['status']}{by}: {mutation.name.removeprefix('vllm.v1.core.')}")


def file_name(mutation: Mutation) -> str:
    """Return the name of a mutant's file: its place, and a digest as several have the same."""
    digest = hashlib.sha256(mutation.name.encode()).hexdigest()[:8]
    return f"{mutation.module.rpartition('.')[2]}_{mutation.span[0]}_{digest}.py"
