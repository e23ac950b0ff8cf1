"""Nouns: figure, row, share.

What a ledger's results come to: medians over the seeds, with their ranges, and the shares found.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from schedfuzz.bench.ledger import Result
from schedfuzz.bench.table import Bug


def bug_row(bug: Bug, results: Iterable[Result]) -> dict[str, Any]:
    """Return what all seeds' results say of a bug.

    `found` of `seeds`; `executions` and `seconds` are (median, least, most) of the seeds that found
    it, None if none did; `precise` counts the found ones whose reproducer proved to be this bug.
    """
    mine = [result for result in results if result["bug"] == bug.id]
    found = [result for result in mine if result["found"]]
    verdicts = {f"{result['verdict']} {result['kind']}: {result['title']}" for result in found}
    return {
        "bug": bug.id,
        "title": bug.title,
        "before": bug.before,
        "after": bug.after,
        "seeds": len(mine),
        "found": len(found),
        "executions": spread([result["executions"] for result in found]),
        "seconds": spread([result["seconds"] for result in found]),
        "verdicts": sorted(verdicts),
        "precise": sum(result["precise"] for result in found),
        "lookalikes": sum(result["lookalikes"] for result in mine),
    }


def spread(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return median, least and most of some values, None of none."""
    return (statistics.median(values), min(values), max(values)) if values else None


def bugs_summary(bugs: Sequence[Bug], results: Iterable[Result]) -> dict[str, Any]:
    """Return the rows of all bugs that were hunted, and how many any seed found."""
    results = list(results)
    rows = [row for bug in bugs if (row := bug_row(bug, results))["seeds"]]
    return {
        "bugs": len(rows),
        "found": sum(row["found"] > 0 for row in rows),
        "precise": sum(row["precise"] > 0 for row in rows),
        "rows": rows,
    }


def curves(results: Iterable[Result]) -> dict[str, list[float]]:
    """Return the seconds at which bugs were found: a curve per seed, and that of any seed."""
    seeds: dict[int, list[float]] = {}
    first: dict[str, float] = {}
    for result in results:
        times = seeds.setdefault(result["seed"], [])
        if result["found"]:
            times.append(result["seconds"])
            first[result["bug"]] = min(first.get(result["bug"], 1e9), result["seconds"])
    named = {f"seed {seed}": sorted(times) for seed, times in sorted(seeds.items())}
    return named | {"any seed": sorted(first.values())}


# -- mutants -------------------------------------------------------------------------------------


def mutants_summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return how many mutants were killed and by what, in all and per operator, and who survived.

    `share` is killed of all, `share_of_reached` of those whose block some scenario ran; both leave
    out mutants that the machine could not run.
    """
    operators = sorted({result["operator"] for result in results})
    by_operator = {
        operator: _counts([item for item in results if item["operator"] == operator])
        for operator in operators
    }
    survivors = [result for result in results if result["status"] in ("survived", "not reached")]
    return _counts(results) | {"operators": by_operator, "survivors": survivors}


def _counts(results: Sequence[Result]) -> dict[str, Any]:
    killed = [result for result in results if result["status"] == "killed"]
    by = {way: sum(item["by"] == way for item in killed) for way in
          ("violation", "divergence", "start")}  # fmt: skip
    tried = [result for result in results if result["status"] != "not run"]
    reached = [result for result in tried if result["status"] != "not reached"]
    return {
        "mutants": len(results), "killed": len(killed), "killed_by": by,
        "survived": len(reached) - len(killed), "not_reached": len(tried) - len(reached),
        "not_run": len(results) - len(tried),
        "share": round(len(killed) / len(tried), 3) if tried else None,
        "share_of_reached": round(len(killed) / len(reached), 3) if reached else None,
    }  # fmt: skip
