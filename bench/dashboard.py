"""How fast the dashboard answers with thousands of findings: `dashboard.py [--findings N]`.

Every page is asked over HTTP from the server that `schedfuzz serve` starts, on a fresh SQLite
database (or --db URL), and gives the median and the range of its milliseconds. Beside them stands
an empty page of the same server, for the ratio.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import waitress

from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import KINDS, ORDER, Verdict
from schedfuzz.db import writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.web.app import create

PAGES = (
    "/healthz", "/findings", "/findings?sort=count", "/findings?verdict=fixed&text=title+of",
    "/findings?page=25", "/findings?format=json", "/findings/1", "/",
)  # fmt: skip


def fill(store: Store, count: int) -> None:
    """Store findings of every verdict and kind, each with a scenario of its own."""
    hunt = writes.start_hunt(store, "0.28.0", "0.29.0", 1, {})
    for number in range(count):
        scenario = Scenario(
            Engine(max_model_len=64, num_blocks=32),
            tuple(Request(id=n, prompt=Prompt(1 + number % 50), max_tokens=3) for n in range(5)),
        )
        name, kind = ORDER[number % len(ORDER)], KINDS[number % len(KINDS)]
        verdict = Verdict(name, kind, "a-rule", f"{number:016x}", f"title of {number}", "detail")
        writes.record_verdict(
            store, hunt, "0.28.0", "0.29.0", verdict, scenario, 9, number, number / 4
        )


def milliseconds(url: str, rounds: int) -> list[float]:
    """Return how long each answer took."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        with urllib.request.urlopen(url) as answer:
            answer.read()
        found.append(1000 * (time.perf_counter() - start))
    return found


def main() -> None:
    """Print a row for each page, and the same as JSON with --json FILE."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--db")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(wanted.db or f"sqlite:///{folder}/dashboard.db")
        fill(store, wanted.findings)
        server = waitress.create_server(create(store), host="127.0.0.1", port=0)
        threading.Thread(target=server.run, daemon=True).start()
        base = f"http://127.0.0.1:{server.effective_port}"
        rows = {path: milliseconds(base + path, wanted.rounds) for path in PAGES}
    empty = statistics.median(rows[PAGES[0]])
    said = f"{wanted.findings} findings, {wanted.rounds} rounds"
    print(f"{said}: median (range) ms, times an empty page")
    for path, times in rows.items():
        middle = statistics.median(times)
        span = f"({min(times):.1f} to {max(times):.1f})"
        print(f"{path:<40} {middle:8.1f} {span:<18} {middle / empty:6.1f}")
    if wanted.json:
        wanted.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
