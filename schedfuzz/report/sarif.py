"""Nouns: SARIF log (OASIS SARIF 2.1.0), result, rule.

Findings as results of a static analyser, for code-scanning pages. The place is the innermost vLLM
function of a crash, else the scheduler; its line differs from release to release and is left out.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from schedfuzz import __version__
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.rules import RULES
from schedfuzz.report.facts import Facts

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"regressed": "error", "both": "warning", "fixed": "note", "changed": "note"}
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
SUPPRESSED = ("muted", "dup", "invalid", "verified")


def sarif(facts: Sequence[Facts]) -> str:
    """Return a SARIF log with a result per finding."""
    rules = sorted({one.row.rule for one in facts})
    driver = {
        "name": "schedfuzz", "version": __version__, "rules": [_rule(name) for name in rules],
    }  # fmt: skip
    results = [_result(one, rules.index(one.row.rule)) for one in facts]
    log = {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n"


def _rule(name: str) -> dict[str, Any]:
    sentence = RULES[name][1] if name in RULES else f"vLLM ends with {name}"
    return {"id": plain(name), "shortDescription": {"text": plain(sentence)}}


def _result(facts: Facts, rule: int) -> dict[str, Any]:
    row = facts.row
    result: dict[str, Any] = {
        "ruleId": plain(row.rule), "ruleIndex": rule, "level": LEVELS[row.verdict],
        "message": {"text": plain(f"{row.title}: {facts.who}. {row.detail}. {facts.story}")},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _place(facts)}}}],
        "partialFingerprints": {"schedfuzz/v1": plain(row.fingerprint)},
        "properties": {
            "finding": row.id, "verdict": row.verdict, "kind": row.kind, "status": row.status,
            "before": row.before, "after": row.after, "sightings": facts.sightings,
            "scenario": msgspec.json.decode(row.reproducer.data),
        },
    }  # fmt: skip
    if row.status in SUPPRESSED:
        result["suppressions"] = [{"kind": "external", "justification": row.status}]
    return result


def _place(facts: Facts) -> str:
    violation = facts.bad.violations[0] if facts.bad and facts.bad.violations else None
    module = violation.function.partition(":")[0] if violation else ""
    if not module.startswith("vllm.") or not module.replace(".", "").replace("_", "").isalnum():
        return SCHEDULER
    return module.replace(".", "/") + ".py"
