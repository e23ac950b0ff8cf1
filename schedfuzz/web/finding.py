"""Nouns: finding page: facts, drawings, matrix strip, commands."""

from typing import Any

from schedfuzz.corpus import codec
from schedfuzz.corpus.names import holds_no_path, typed_pair
from schedfuzz.report.facts import Facts
from schedfuzz.report.pages import drawn


def shown(facts: Facts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what JSON gives of a finding, and what its page needs besides."""
    more = {
        "facts": facts, "row": facts.row, "drawn": drawn(facts), "commands": _commands(facts),
        "text": codec.pretty(facts.scenario), "strip": _strip(facts),
    }  # fmt: skip
    return facts.as_json(), more


def _strip(facts: Facts) -> list[tuple[str, str, str]]:
    """Return (target, outcome, in words) for each target that the finding was tried on."""
    known = {
        entry.target: (entry.outcome, f"{entry.outcome} in {entry.hits} of {entry.runs} runs")
        for entry in facts.verifications
    }
    return [(target, *said) for target, said in sorted(known.items())]


def _commands(facts: Facts) -> list[str]:
    row = facts.row
    pair = typed_pair(row.before, row.after)
    no_path = holds_no_path(row.before, row.after)
    return [
        f"schedfuzz show {row.id}",
        f"schedfuzz diff {row.id}",
        f"schedfuzz replay {row.id} {pair}",
        *([f"schedfuzz minimize {row.id}{f' {pair}' * no_path}"] * (row.minimize_state != "done")),
        f"schedfuzz matrix {row.id}",
        f"schedfuzz bisect {row.id} --repo PATH/TO/CLONE",
        f"schedfuzz export {row.id} --format issue --out findings",
        f"schedfuzz export {row.id} --format patch --out findings",
    ]
