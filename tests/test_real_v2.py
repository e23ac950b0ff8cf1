"""The second runner generation without a GPU: Triton's interpreter runs its kernels."""

import subprocess
from pathlib import Path
from random import Random

import pytest
from command import schedfuzz
from fabricated import SEED_BUG
from uv import find_uv_bin

from schedfuzz.bench.fidelity import difference
from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair, limit_of
from schedfuzz.workers.target.real.device import TRITON, check_interpreter
from schedfuzz.workers.targets import Target

SIMULATED, REAL = Target("0.29.0"), Target("0.29.0", runner="real")
SCENARIOS = 12


@pytest.fixture(scope="session")
def triton(shared_home: Home) -> Path:
    """A directory that holds the triton package and nothing that it depends on."""
    place = shared_home.root / "triton"
    if not (place / "triton" / "__init__.py").exists():
        command = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--target", place,
                   "triton==3.9.0"]  # fmt: skip
        subprocess.run(command, check=True, timeout=600)
    return place


def test_a_directory_without_triton_is_bad_input(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRITON, str(tmp_path))
    with pytest.raises(InputError, match="no triton package in it; `pip install --no-deps"):
        check_interpreter()
    file = tmp_path / "bug.json"
    file.write_text(codec.pretty(SEED_BUG))
    env = {"SCHEDFUZZ_HOME": str(home.root), TRITON: str(tmp_path)}
    result = schedfuzz("replay", file, "0.28.0", "0.29.0:real", env=env)
    assert result.returncode == 2
    assert result.stderr.startswith(f"schedfuzz: {TRITON} = {tmp_path}: there is no triton package")
    assert not list(home.targets.glob("*")), "said before anything is built"


def test_without_the_interpreter_v2_is_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = limit_of(SIMULATED, REAL)
    assert limit is not None
    scenarios = [generate(Random(seed)) for seed in range(300)]
    monkeypatch.delenv(TRITON, raising=False)
    assert {s.engine.model_runner for s in map(Supported(limit).fit, scenarios)} == {"v1"}
    monkeypatch.setenv(TRITON, "somewhere")
    fitted = [s for s in map(Supported(limit).fit, scenarios) if s.engine.model_runner == "v2"]
    assert len(fitted) > 10
    assert not any(request.structured for scenario in fitted for request in scenario.requests)


@pytest.mark.vllm
def test_both_runners_play_v2_alike(
    shared_home: Home, environment_029, triton: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRITON, str(triton))
    supported, rng, played = Supported(limit_of(SIMULATED, REAL)), Random(7), 0
    with Pair(SIMULATED, REAL, shared_home, print) as pair:
        while played < SCENARIOS:
            scenario = supported.fit(generate(rng))
            if scenario.engine.model_runner == "v2":
                simulated, real = pair.run(scenario)
                assert difference(simulated, real) is None, codec.pretty(scenario)
                played += real.outcome == "finished"
