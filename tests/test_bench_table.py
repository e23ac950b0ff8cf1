"""The table of known bugs: what it may say, what counts as evidence, which code has changed."""

from pathlib import Path

import msgspec
import pytest
from fabricated import SMALL

from schedfuzz.bench.changes import changed_lines
from schedfuzz.bench.table import (
    Bug,
    changed_sites,
    chosen,
    default_table,
    load_table,
    module_source,
)
from schedfuzz.bench.trial import Watch
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.events import ResetPrefixCache
from schedfuzz.corpus.trace import Verdict
from schedfuzz.workers.environment import Environment

ENTRY = """
[[bug]]
id = "PR#1"
title = "a title"
kind = "contract"
before = "0.28.0"
after = "0.29.0"
dimensions = ["speculation"]
component = ["vllm.v1.core.sched.scheduler:Scheduler.schedule"]
evidence = ["contract:token-budget", "crash:KeyError", "starvation", "changed:schedule:order"]
needs = ["policy", "accept", "reset_prefix_cache"]
"""


def bug(text: str = ENTRY) -> Bug:
    return msgspec.toml.decode(text.replace("[[bug]]", ""), type=Bug)


# -- the file ------------------------------------------------------------------------------------


def test_the_table_of_the_project_is_well_formed() -> None:
    bugs = load_table(default_table())
    assert len(bugs) >= 23
    assert {bug.before for bug in bugs} >= {"0.24.0", "0.28.0", "0.31.0"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "PR#1"', "", "missing required field `id`"),
        ('id = "PR#1"', 'id = ""', "must not be empty"),
        ('kind = "contract"', 'kind = "sadness"', "Invalid enum value 'sadness'"),
        ('before = "0.28.0"', 'before = "old"', "bug 'PR#1': target 'old' is not a release"),
        ("dimensions = [", "dimension = [", "unknown field `dimension`"),
        (":Scheduler.schedule", "", "is not MODULE:FUNCTION"),
        ("contract:token-budget", "contract:no-rule", "evidence 'contract:no-rule'"),
        ("contract:token-budget", "leak:token-budget", "evidence 'leak:token-budget'"),
        ("changed:schedule:order", "changed:mood", "evidence 'changed:mood'"),
        ('"policy"', '"politics"', "needs 'politics', no field"),
        ("[[bug]]", "[[bug", "not a table of bugs"),
        ("", "\n" + ENTRY, "bug 'PR#1' stands there twice"),
    ],
)
def test_a_malformed_table_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    table = tmp_path / "bugs.toml"
    table.write_text(ENTRY.replace(old, new) if old else ENTRY + new)
    with pytest.raises(InputError) as caught:
        load_table(table)
    assert said in str(caught.value) and str(table) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_table_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such table"):
        load_table(tmp_path / "gone.toml")
    (tmp_path / "raw").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a table of bugs"):
        load_table(tmp_path / "raw")
    with pytest.raises(InputError, match="cannot read it"):
        load_table(tmp_path)


def test_only_named_bugs_are_chosen_and_unknown_names_refused() -> None:
    bugs = (bug(), msgspec.structs.replace(bug(), id="PR#2"))
    assert chosen(bugs, ()) == bugs
    assert [item.id for item in chosen(bugs, ("PR#2",))] == ["PR#2"]
    with pytest.raises(InputError, match="'PR#3': no such bug; the table has: PR#1, PR#2"):
        chosen(bugs, ("PR#3",))


# -- evidence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        (Verdict("fixed", "contract", "token-budget"), True),
        (Verdict("fixed", "contract", "seats"), False),
        (Verdict("regressed", "contract", "token-budget"), False),
        (Verdict("both", "contract", "token-budget"), False),
        (Verdict("fixed", "crash", "KeyError"), True),
        (Verdict("fixed", "crash", "ValueError"), False),
        (Verdict("fixed", "starvation", "deadlock"), True),
        (Verdict("changed", "divergence", "schedule:order"), True),
        (Verdict("changed", "divergence", "schedule:preemption"), False),
    ],
)
def test_a_verdict_shows_the_bug_only_as_the_table_says(verdict: Verdict, shown: bool) -> None:
    assert bug().shown_by(verdict) is shown


def test_what_a_bug_needs_must_be_in_the_scenario() -> None:
    assert not bug().can_show(SMALL)
    story = msgspec.structs.replace(
        SMALL,
        engine=msgspec.structs.replace(SMALL.engine, policy="priority"),
        requests=(msgspec.structs.replace(SMALL.requests[0], accept=(1,)),),
    )
    assert not bug().can_show(story)
    assert bug().can_show(msgspec.structs.replace(story, events=(ResetPrefixCache(1),)))


# -- changed code --------------------------------------------------------------------------------

BEFORE = '''
class Scheduler:
    def schedule(self, budget):
        """One text."""
        total = 0
        while budget > 0:
            if total:
                budget -= 2
            elif budget == 3:
                total = 1
            else:
                total += 1
            budget -= 1

        def inner():
            return total

        return inner()

    def other(self):
        return 1
'''


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('"""One text."""', '"""Another text."""', set()),
        ("total = 0", "total = 1", {"schedule:5"}),
        ("if total:", "if not total:", {"schedule:7"}),
        ("elif budget == 3", "elif budget == 4", {"schedule:7"}),
        ("budget -= 2", "budget -= 3", {"schedule:8"}),
        ("                total = 1\n", "                pass\n", {"schedule:10"}),
        ("            budget -= 1\n", "", {"schedule:7"}),
        ("return total", "return -total", {"schedule.inner:16"}),
        ("return 1", "return 2", set()),
        ("def schedule", "def plan", {f"schedule:{n}" for n in (5, 7, 8, 10, 12)}
         | {"schedule.inner:16"}),
    ],
)  # fmt: skip
def test_a_change_marks_the_innermost_block(old: str, new: str, changed: set[str]) -> None:
    after = BEFORE.replace(old, new, 1)
    assert after != BEFORE
    expected = {f"Scheduler.{item}" for item in changed}
    assert changed_lines(BEFORE, after, "Scheduler.schedule") == expected


def test_moved_code_is_not_changed_code() -> None:
    assert changed_lines(BEFORE, "\n\nX = 1\n" + BEFORE, "Scheduler.schedule") == set()


def test_a_watch_sees_which_changed_blocks_ran() -> None:
    watch = Watch(bug(), frozenset({"m:f:1", "m:g:2"}))
    assert watch.touched(["m:f:1", "m:f:9", "m:g:2"], bytes([1, 1, 0])) == ["m:f:1"]


@pytest.mark.vllm
def test_the_components_of_the_seed_pair_have_changed(
    environment_028: Environment, environment_029: Environment
) -> None:
    pair = environment_028, environment_029
    mine = [item for item in load_table(default_table()) if item.before == "0.28.0"]
    assert {"PR#53962"} < {item.id for item in mine}
    assert all(changed_sites(item, *pair) for item in mine)
    same = msgspec.structs.replace(mine[0], component=("vllm.v1.core.sched.utils:remove_all",))
    assert module_source(environment_028, "vllm.v1.core.sched.utils")
    with pytest.raises(InputError, match="its component is the same in"):
        changed_sites(same, *pair)
