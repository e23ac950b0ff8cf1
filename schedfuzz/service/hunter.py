"""Nouns: hunter.

One place at which a campaign hunts: it owns the process that hunts, feeds and empties its corpus
directory, writes down how far it is, and stops it when the job is lost or its campaign is not
active any more.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import IO, Any

import msgspec

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import campaigns, poison, samples, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import Lease
from schedfuzz.db.service_models import Campaign
from schedfuzz.service.corpus_sync import CorpusSync
from schedfuzz.service.keeping import Kept
from schedfuzz.service.orders import Order, Report
from schedfuzz.service.unsaved import Sighted, Unsaved
from schedfuzz.workers.home import Home, make_directory, trim_log
from schedfuzz.workers.targets import parse_target

SLICE_SECONDS = 600.0
SYNC_SECONDS = 15.0
SAMPLE_SECONDS = 30.0
WANTED_SECONDS = 5.0
STOP_SECONDS = 60.0


class Hunter:
    """Hunts one slice for a campaign in a process of its own."""

    def __init__(
        self, store: Store, home: Home, campaign: Campaign, targets: tuple[str, ...],
        lease: Lease, node: str,
    ) -> None:  # fmt: skip
        self.store = store
        self.home = home
        self.campaign = campaign
        self.targets = targets
        self.node = node
        before, after = targets
        self.names = parse_target(before).name, parse_target(after).name
        self.lease = lease
        slot = lease.subject.replace("/", "-")
        self.folder = make_directory(home.root / "hunts" / f"{slot}-{os.getpid()}")
        self.log = home.logs / f"hunt-{slot}.log"
        self.last: Report | None = None
        self._database = os.environ.get("SCHEDFUZZ_DB") or home.database_url
        self._unsaved = Unsaved(home, self._database)
        self._sync = CorpusSync(store, *self.names, make_directory(self.folder / "corpus"))
        self._due = {"sync": 0.0, "sample": time.monotonic() + SAMPLE_SECONDS}

    def hunt(self, keeper: Kept) -> dict[str, Any]:
        """Hunt one slice; return its figures.

        Raises InfraError when the process that hunts fails, InputError when it is asked for what
        does not exist.
        """
        try:
            self._turn("sync", SYNC_SECONDS, self._exchange)
            return self._supervise(keeper)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _supervise(self, keeper: Kept) -> dict[str, Any]:
        process = self._start()
        reports: Queue[Report] = Queue()
        assert process.stdout is not None
        threading.Thread(target=_listen, args=(process.stdout, reports), daemon=True).start()
        asked: float | None = None
        try:
            while process.poll() is None:
                self._hear(reports)
                if asked is None and (keeper.lost or not self._wanted()):
                    asked = time.monotonic()
                    process.send_signal(signal.SIGTERM)
                if asked is not None and time.monotonic() - asked > STOP_SECONDS:
                    process.kill()
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        self._hear(reports)
        return self._ended(process.returncode, asked is not None)

    def _start(self) -> subprocess.Popen[bytes]:
        order = self._order()
        trim_log(self.log)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "schedfuzz.service.hunting"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env={**os.environ, "SCHEDFUZZ_HOME": str(self.home.root)},
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.close()
        return process

    def _order(self) -> Order:
        options = self.campaign.options
        executions, seconds = campaigns.spent(self.store, self.campaign.id)
        left = self.campaign.budget_seconds
        runs = self.campaign.budget_executions
        slice_seconds = float(options.get("time_slice", SLICE_SECONDS))
        return Order(
            database=self._database,
            campaign=self.campaign.id, before=self.targets[0], after=self.targets[1],
            node=self.node, seed=secrets.randbelow(2**31 - 2),
            seconds=slice_seconds if left is None else max(1.0, min(slice_seconds, left - seconds)),
            executions=None if runs is None else max(1, runs - executions),
            current=str(self.folder / "current"), corpus=str(self.folder / "corpus"),
            seeds=not self.campaign.canary, self_check=bool(options.get("self_check")),
            dimensions=tuple(options.get("dimensions", ())),
            options=campaigns.leased(self.lease),
        )  # fmt: skip

    # -- while it hunts --------------------------------------------------------------------------

    def _hear(self, reports: "Queue[Report]") -> None:
        while True:
            try:
                self.last = reports.get_nowait()
            except Empty:
                break
        self._turn("sync", SYNC_SECONDS, self._exchange)
        if self.last is not None:
            self._turn("sample", SAMPLE_SECONDS, self._sample)

    def _turn(self, name: str, every: float, act: Any) -> None:
        """Do what is due now and then; a database that is away is asked again later."""
        if time.monotonic() < self._due[name]:
            return
        self._due[name] = time.monotonic() + every
        try:
            act()
        except InfraError:
            self._due[name] = time.monotonic() + every / 3

    def _exchange(self) -> None:
        self._unsaved.save(self._record)
        self._sync.turn()

    def _record(self, late: Sighted) -> None:
        writes.record_verdict(
            self.store, late.hunt, late.before, late.after, late.verdict, late.scenario,
            late.steps, late.execution, late.seconds, campaign_id=late.campaign,
        )  # fmt: skip

    def _sample(self) -> None:
        report = self.last
        assert report is not None
        samples.add(
            self.store, self.campaign.id, report.hunt, executions=report.executions,
            seconds=report.seconds, corpus=self._sync.kept, sites_before=report.sites[0],
            sites_after=report.sites[1], features=report.features, findings=report.findings,
            infra=report.infra, restarts=report.restarts, memory=report.memory,
        )  # fmt: skip

    def _wanted(self) -> bool:
        """Return whether the campaign still wants to hunt; an answer may be some seconds old."""
        now = time.monotonic()
        if now >= self._due.get("wanted", 0.0):
            self._due["wanted"] = now + WANTED_SECONDS
            try:
                self._active = campaigns.by_id(self.store, self.campaign.id).state == "active"
            except InfraError:
                self._active = True
        return self._active

    # -- afterwards ------------------------------------------------------------------------------

    def _ended(self, code: int, asked: bool) -> dict[str, Any]:
        self._due["sync"] = 0.0
        self._turn("sync", SYNC_SECONDS, self._exchange)
        if self.last is not None:
            self._due["sample"] = 0.0
            self._turn("sample", SAMPLE_SECONDS, self._sample)
        if code != 0 and not (asked and code in (-signal.SIGTERM, -signal.SIGKILL)):
            self._blame(code)
            raise (InputError if code == 2 else InfraError)(
                f"the hunt's process ended with {code}: {_last_line(self.log)}"
            )
        figures = {} if self.last is None else msgspec.to_builtins(self.last)
        return {"asked": asked} | figures

    def _blame(self, code: int) -> None:
        """Hold the scenario at hand responsible for the death of the process that hunts."""
        if code > 0:
            return
        try:
            data = (self.folder / "current").read_bytes().partition(b"\0")[0]
            scenario = codec.decode(data)
        except (InputError, OSError):  # it had none yet, or its disk is gone
            return
        poison.blame(self.store, *self.names, scenario, f"the hunt's process ended with {code}")


def _listen(stream: IO[bytes], reports: "Queue[Report]") -> None:
    """Pass on reports; what else stands there is none."""
    for line in stream:
        try:
            reports.put(msgspec.json.decode(line, type=Report))
        except msgspec.DecodeError:
            continue


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4000))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "its log is empty"
