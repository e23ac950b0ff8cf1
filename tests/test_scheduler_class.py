"""A scheduler class of one's own against vLLM's: found from the command line, on a real release."""

import json
from pathlib import Path

import pytest
from command import schedfuzz

pytestmark = pytest.mark.vllm
CLASSES = '''
from vllm.v1.core.sched.scheduler import Scheduler


class Same(Scheduler):
    pass


class Forgetful(Scheduler):
    """Loses what was sampled whenever two requests are there."""

    def update_from_output(self, scheduler_output, model_runner_output):
        crowded = len(self.requests) > 1
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        for batch in outputs.values() if crowded else ():
            for output in batch.outputs:
                output.new_token_ids = []
        return outputs
'''


@pytest.mark.parametrize(("name", "code"), [("Same", 0), ("Forgetful", 3)])
def test_a_class_is_hunted_against_vllms_own(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(CLASSES)
    monkeypatch.chdir(tmp_path)
    done = schedfuzz(
        "hunt", "0.29.0", "0.29.0", "--scheduler-cls", f"mine:{name}", "--runs", 40, "--seed", 5,
        "--corpus", tmp_path / "corpus", "--db", f"sqlite:///{tmp_path}/a.db",
        "--json", tmp_path / "result.json",
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert "engine.async_scheduling false" in result["left_out"]
    assert "kept to engine.async_scheduling = false, for one of the targets plays" in done.stderr
    rules = {finding["rule"] for finding in result["findings"] if finding["verdict"] == "regressed"}
    assert bool(rules) == (name == "Forgetful"), rules
