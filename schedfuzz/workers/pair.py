"""Nouns: pair, before, after, limit.

Two targets run the same scenario at the same time: both jobs are handed over before either trace
is awaited. Where the real runner plays, what it cannot play is known beforehand: the pair's limit.
"""

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.workers.environment import build_kind
from schedfuzz.workers.home import Home
from schedfuzz.workers.process import OnIncident, TargetProcess
from schedfuzz.workers.ready import ready
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.target.real.device import check_interpreter
from schedfuzz.workers.targets import Target


def limit_of(before: Target, after: Target) -> Callable[[Scenario], str | None] | None:
    """Return what names the first field of a scenario that the pair's runners cannot play alike.

    Returns None for two simulated runners, which play everything that a scenario can say.
    """
    runners = {before.runner, after.runner}
    if runners == {"simulated"}:
        return None
    limit = limits.exceeded if runners == {"real"} else limits.parting
    return partial(limit, build=build_kind())


class Pair:
    """The processes of two targets; a context manager that starts and ends them."""

    def __init__(
        self,
        before: Target,
        after: Target,
        home: Home,
        progress: Callable[[str], None],
        on_incident: OnIncident | None = None,
        **options: Any,
    ) -> None:
        if "real" in (before.runner, after.runner):
            check_interpreter()
        environments = {
            target: ready(target, home, progress) for target in dict.fromkeys((before, after))
        }
        self.before, self.after = (
            TargetProcess(
                target, environments[target],
                home.logs / f"target-{target.release}-{target.runner}-{side}.log", on_incident,
                **options,
            )
            for side, target in (("before", before), ("after", after))
        )  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self.before.spawn()
            self.after.spawn()
            self.before.wait_ready()
            self.after.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()

    def on_incident(self, call: OnIncident) -> None:
        """Name who hears of workers lost to the machine."""
        self.before.on_incident = self.after.on_incident = call

    def stop(self) -> None:
        """End both targets' processes."""
        self.before.stop()
        self.after.stop()

    def run(self, scenario: Scenario) -> tuple[Trace, Trace]:
        """Return the traces of before and after."""
        self.before.submit(scenario)
        self.after.submit(scenario)
        return self.before.collect(), self.after.collect()

    @property
    def restarts(self) -> int:
        """The number of workers and zygotes replaced so far on both sides."""
        return self.before.restarts + self.after.restarts
