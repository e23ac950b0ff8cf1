"""Ray's logs of processes that are long gone go; everything else in its folder stays."""

import os
import time
from pathlib import Path

from schedfuzz.service import ray_logs


def test_old_logs_of_processes_go_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    names = [
        "worker-0a-01000000-12.out", "python-core-worker-0a_12.log",
        "events/event_CORE_WORKER_12.log",
        "export_events/event_EXPORT_TASK_12.log", "raylet.out", "gcs_server.out", "debug_state.txt",
    ]  # fmt: skip
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        os.utime(folder / name, (0, time.time() - ray_logs.KEPT_SECONDS - 60))
    new = folder / "worker-0b-01000000-13.out"
    new.touch()
    assert ray_logs.age_out(folder) == 4
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert left == {"raylet.out", "gcs_server.out", "debug_state.txt", new.name}
    assert ray_logs.age_out(folder) == 0


def test_a_folder_that_is_not_there_has_no_old_logs(tmp_path: Path) -> None:
    assert ray_logs.age_out(tmp_path / "none") == 0
