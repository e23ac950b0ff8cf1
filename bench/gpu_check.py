"""Nouns: check, verdict table.

Whether the real runner does on a machine's GPU what it does on a CPU: the environment, the
exactness of the checkable model on the GPU's attention kernels, a release against itself on both
runner generations, sync and async, a bug that is known, speed and memory. Under ten minutes once
the targets are built. Exits with 0 when all passed, 1 when something failed, 2 without a GPU.

    .venv/bin/python bench/gpu_check.py [--scenarios 40] [--json FILE]
    .venv/bin/python bench/gpu_check.py --cpu    # the same checks on the CPU build, without a GPU
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from measuring import megabytes
from msgspec.structs import replace

from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.build import ensure
from schedfuzz.workers.environment import build_kind
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair, limit_of
from schedfuzz.workers.target.real.limits import block_size, exceeded
from schedfuzz.workers.targets import Target

BEFORE, AFTER = Target("0.28.0", runner="real"), Target("0.29.0", runner="real")
PROBE = Path(__file__).with_name("real_probe.py")
PROBE_SECONDS = 300
NO_GPU = "gpu_check: `nvidia-smi -L` names no GPU; use a machine with one, or --cpu"
# The scenario of vLLM's PR #53962: request 2 has one token left beside its cached prefix, and no
# room for a draft.
PADDING = (
    Request(0, Prompt(64, 1), 2), Request(1, Prompt(9, 2), 12, accept=(0, 1)),
    Request(2, Prompt(65, 1), 1, arrival=4),
)  # fmt: skip

Word = Literal["PASS", "FAIL", "SKIP"]


class Result(NamedTuple):
    """What a check says, and the figures it says it of."""

    word: Word
    text: str


def main() -> int:
    """Run every check, print a line each, and return the exit code."""
    options = _options()
    if options.cpu != (build_kind() == "cpu"):
        print(NO_GPU if not options.cpu else "gpu_check: --cpu is for a machine without a GPU",
              file=sys.stderr)  # fmt: skip
        return 2
    results: dict[str, Result] = {}
    for name, check in _checks(options.scenarios).items():
        start = time.monotonic()
        try:
            results[name] = check()
        except (InfraError, OSError, subprocess.SubprocessError) as error:
            results[name] = Result("FAIL", str(error))
        print(f"{results[name].word}  {name:<28} {time.monotonic() - start:4.0f} s  "
              f"{results[name].text}", flush=True)  # fmt: skip
    if options.json:
        rows = {name: result._asdict() for name, result in results.items()}
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return int(any(result.word == "FAIL" for result in results.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--scenarios", type=int, default=40)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _checks(count: int) -> dict[str, Callable[[], Result]]:
    modes = [(runner, is_async) for runner in ("v1", "v2") for is_async in (False, True)]
    alike = {
        f"{runner} {'async' if is_async else 'sync'} against itself":
            lambda runner=runner, is_async=is_async: _alike(count, runner, is_async)
        for runner, is_async in modes
    }  # fmt: skip
    return {
        "environment": _environment,
        "exactness of the model": _exactness,
        **alike,
        "PR #53962": _known_bug,
        "speed and memory": lambda: _cost(count),
    }


# -- the checks ----------------------------------------------------------------------------------


def _environment() -> Result:
    """Build what is missing, and name what plays."""
    for target in (BEFORE, AFTER):
        ensure(target.release, Home.locate(), _say)
    kind = build_kind()
    where = "the CPU build" if kind == "cpu" else _query("name,driver_version,memory.total")
    return Result("PASS", f"{BEFORE.release} and {AFTER.release} are ready; {where}")


def _exactness() -> Result:
    environment = ensure(AFTER.release, Home.locate(), _say)
    answer = subprocess.run(
        [str(environment.python), str(PROBE)], env=environment.variables(), capture_output=True,
        text=True, timeout=PROBE_SECONDS,
    )  # fmt: skip
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        return Result("FAIL", f"the probe ended with {answer.returncode}: {last}")
    seen = json.loads(answer.stdout.splitlines()[-1])
    exact = seen["outcome"] == "finished" and seen["rounding"] < 0.25
    place = "cpu" if build_kind() == "cpu" else "cuda"
    right_place = str(seen["device"]).startswith(place)
    return Result(
        "PASS" if exact and right_place else "FAIL",
        f"{seen['kernel']} on {seen['device']}, torch {seen['torch']}: at most "
        f"{seen['rounding']:.4f} from whole over {seen['positions']} positions "
        f"{' '.join(seen['broken'])}".rstrip(),
    )  # fmt: skip


def _alike(count: int, runner: str, is_async: bool) -> Result:
    """Compare a release with itself, and its two runners with each other."""
    wanted = {"model_runner": runner, "async_scheduling": is_async}
    if _limit(Scenario(_engine(**wanted), PADDING)):
        return Result("SKIP", "the real runner does not play it on this build")
    scenarios = list(_scenarios(count, wanted))
    with _pair(AFTER, AFTER) as pair:
        own = [judge(*pair.run(scenario)).verdict for scenario in scenarios]
    with _pair(AFTER.on("simulated"), AFTER) as pair:
        other = [judge(*pair.run(scenario)).verdict for scenario in scenarios]
    differ, played = len(own) - _same(own), len(own) - own.count("infra")
    word: Word = "FAIL" if differ or played * 2 < count else "PASS"
    return Result(word, f"{played} scenarios, {differ} differ; {len(other) - _same(other)} differ "
                        "from the simulated runner")  # fmt: skip


def _known_bug() -> Result:
    scenario = Scenario(_engine(num_speculative_tokens=1), PADDING)
    with _pair(BEFORE, AFTER) as pair:
        found = judge(*pair.run(scenario))
    word: Word = "PASS" if found.verdict == "fixed" else "FAIL"
    text = f"{BEFORE.name} {AFTER.name}: {found.verdict} {found.rule} {found.detail}"
    return Result(word, text)


def _cost(count: int) -> Result:
    scenarios = list(_scenarios(count, {}))
    with _pair(AFTER, AFTER) as pair:
        pair.run(scenarios[0])
        start = time.perf_counter()
        for scenario in scenarios:
            pair.run(scenario)
        rate = count / (time.perf_counter() - start)
        held = [megabytes(side.worker) for side in (pair.before, pair.after)]
        gpu = 0 if build_kind() == "cpu" else _gpu_megabytes(pair)
    word: Word = "PASS" if max(held) < 4096 and gpu < 4096 else "FAIL"
    return Result(word, f"{rate:.1f} executions of the pair a second; {held} MB resident, "
                        f"{gpu} MB of the GPU for both")  # fmt: skip


# -- what they share -----------------------------------------------------------------------------


def _engine(**fields: Any) -> Engine:
    size = int(block_size(build_kind()).split()[1])
    return Engine(**({"max_model_len": 66, "num_blocks": 40, "block_size": size} | fields))


def _limit(scenario: Scenario) -> str | None:
    return exceeded(scenario, build_kind())


def _scenarios(count: int, wanted: dict[str, Any]) -> Iterator[Scenario]:
    """Yield random scenarios that the real runner plays, with the wanted fields of the engine."""
    rng, supported = random.Random(1), Supported(limit_of(AFTER.on("simulated"), AFTER))
    while count:
        scenario = supported.fit(generate(rng))
        engine = scenario.engine
        if _limit(scenario) or engine != replace(engine, **wanted):
            continue
        count -= 1
        yield scenario


def _pair(before: Target, after: Target) -> Pair:
    return Pair(before, after, Home.locate(), _say)


def _same(verdicts: Sequence[str]) -> int:
    return sum(verdict in ("clean", "both", "infra") for verdict in verdicts)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _query(fields: str) -> str:
    asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def _gpu_megabytes(pair: Pair) -> int:
    """Return what the pair's workers hold of the GPUs' memory; 0 where the driver does not say."""
    asked = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return held_by({pair.before.worker, pair.after.worker}, text)


def held_by(pids: set[int | None], text: str) -> int:
    """Return the sum of the processes' megabytes in nvidia-smi's list of "pid, megabytes"."""
    rows = [line.split(", ") for line in text.splitlines() if line.strip()]
    return sum(int(used) for pid, used in rows if int(pid) in pids and used.isdigit())


if __name__ == "__main__":
    sys.exit(main())
