"""Nouns: facts: a finding with all that is known of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schedfuzz.corpus import codec
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import decisions, queries, traces, verifications
from schedfuzz.db.connect import Store
from schedfuzz.db.decision_models import Decision
from schedfuzz.db.models import Finding
from schedfuzz.db.service_models import Verification
from schedfuzz.fuzzer.judge import first_difference
from schedfuzz.fuzzer.retell import retell

WHO = {
    "regressed": "{before} keeps the rule and {after} breaks it",
    "fixed": "{before} breaks the rule and {after} keeps it",
    "both": "both {before} and {after} break it",
    "changed": "{before} and {after} differ, and neither breaks a rule: it may be meant",
}


@dataclass(frozen=True)
class Facts:
    """A finding, its reproducer, what both sides did with it (None: not stored), what was decided
    about it, and how it does on other targets.
    """

    row: Finding
    sightings: int
    scenario: Scenario
    sides: tuple[Trace, Trace] | None
    decisions: Sequence[Decision]
    verifications: Sequence[Verification]

    @property
    def rule(self) -> str:
        """The rule in a sentence, "" for a crash, a hang or a divergence."""
        return RULES[self.row.rule][1] if self.row.rule in RULES else ""

    @property
    def who(self) -> str:
        """Which side is at fault."""
        return WHO[self.row.verdict].format(before=self.row.before, after=self.row.after)

    @property
    def difference(self) -> str:
        """The first differing step, "" for none or where it is not stored."""
        parting = first_difference(*self.sides) if self.sides else None
        return parting.detail if parting else ""

    @property
    def story(self) -> str:
        """The scenario in a paragraph."""
        bad = self.bad
        return retell(self.scenario, bad) if bad else retell(self.scenario, Trace("finished"))

    @property
    def bad(self) -> Trace | None:
        """What the side did that breaks the rule, or the later of two that only differ."""
        if self.sides is None:
            return None
        return self.sides[0] if self.row.verdict in ("fixed", "both") else self.sides[1]

    def as_json(self) -> dict[str, Any]:
        """Return what `show --json` and the dashboard give to programs."""
        return queries.finding_in_full(self.row, self.sightings) | {
            "verifications": [
                {name: getattr(entry, name) for name in ("target", "outcome", "runs", "hits")}
                for entry in self.verifications
            ],
            "decisions": [
                {name: getattr(entry, name) for name in ("verb", "actor", "note", "at")}
                for entry in self.decisions
            ],
        }

    @property
    def since(self) -> str:
        """What a bisection came to, "" without one."""
        found = [entry.note for entry in self.decisions if entry.verb == "bisect"]
        return found[-1] if found else ""


def gather(store: Store, finding_id: int) -> Facts:
    """Return what is known of a finding. Raises InputError for an unknown id."""
    row = queries.get_finding(store, finding_id)
    return Facts(
        row, queries.sightings(store, row),
        codec.decode(row.reproducer.data, f"finding {row.id}"),
        traces.load(store, row.id, row.reproducer_id),
        decisions.history(store, row.id), verifications.of(store, row.id),
    )  # fmt: skip
