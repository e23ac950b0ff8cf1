"""Nouns: summary of a judged change, for a job page."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from schedfuzz.corpus import codec
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.trace import ORDER
from schedfuzz.report.facts import Facts
from schedfuzz.report.pages import code, environment, fence

WORDS = {
    "regressed": "only after breaks it, but it did not repeat",
    "fixed": "only before breaks it",
    "both": "before breaks it as well",
    "changed": "the schedules differ and no rule is broken",
}


def summary(
    word: str, sentence: str, pair: tuple[str, str], new: Sequence[Facts],
    others: Sequence[str], **facts: Any,
) -> str:  # fmt: skip
    """Return Markdown; `word` and `sentence` are the outcome, `others` verdicts of the rest.

    `facts` are `files`, `totals`, `sites` and `reached`, each of them may be left out.
    """
    made = environment(html=False)
    made.filters["code"] = code
    counts = Counter(others)
    shown = {"files": (), "totals": None, "sites": 0, "reached": 0} | facts
    return made.get_template("summary.md.j2").render(
        word=word, sentence=sentence, before=pair[0], after=pair[1], new=new, words=WORDS,
        others=[(name, counts[name]) for name in ORDER if counts[name]], code=code, fence=fence,
        plain=plain, scenario=lambda one: codec.pretty(one.scenario), **shown,
    )  # fmt: skip
