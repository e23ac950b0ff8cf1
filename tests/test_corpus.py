"""The language: canonical bytes, round trips, and errors that name field, value and cure."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import scenarios

from schedfuzz.corpus.codec import decode, encode, load, pretty, scenario_id
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.validate import validate

SMALL = {
    "engine": {"max_model_len": 40, "num_blocks": 9},
    "requests": [
        {"id": 0, "prompt": {"length": 20}, "max_tokens": 3},
        {"id": 1, "prompt": {"length": 16, "family": 1}, "max_tokens": 5, "arrival": 2},
    ],
    "events": [{"type": "abort", "step": 4, "request": 1}],
    "schema": 1,
}


def changed(**at: object) -> str:
    """Return SMALL as JSON with values set at paths such as requests__0__prompt__length."""
    tree = json.loads(json.dumps(SMALL))
    for path, value in at.items():
        node = tree
        *parents, last = [int(key) if key.isdigit() else key for key in path.split("__")]
        for key in parents:
            node = node[key]
        node[last] = value
    return json.dumps(tree)


@given(scenarios())
def test_round_trip(scenario: Scenario) -> None:
    raw = encode(scenario)
    assert decode(raw) == scenario
    assert encode(decode(raw)) == raw
    assert encode(decode(pretty(scenario))) == raw


@given(scenarios(), st.randoms(use_true_random=False))
def test_same_scenario_same_bytes_whatever_the_order_of_the_input(
    scenario: Scenario, random: Random
) -> None:
    tree = json.loads(encode(scenario))
    random.shuffle(tree["requests"])
    random.shuffle(tree["events"])

    def shuffled(node: object) -> object:
        if isinstance(node, dict):
            items = list(node.items())
            random.shuffle(items)
            return {key: shuffled(value) for key, value in items}
        return [shuffled(value) for value in node] if isinstance(node, list) else node

    again = decode(json.dumps(shuffled(tree), indent=random.choice((None, 1))))
    assert encode(again) == encode(scenario)
    assert scenario_id(again) == scenario_id(scenario)


@pytest.mark.parametrize(
    "path, default",
    [
        ("engine__block_size", 16),
        ("engine__model", "autoregressive"),
        ("engine__max_num_batched_tokens", 256),
        ("engine__policy", "fcfs"),
        ("engine__async_scheduling", False),
        ("requests__0__prompt__family", 0),
        ("requests__0__prompt__shared", None),
        ("requests__0__arrival", 0),
        ("requests__0__priority", 0),
        ("requests__0__accept", [0]),
        ("events__0__in_flight", False),
    ],
)
def test_a_default_that_is_written_out_does_not_change_the_bytes(
    path: str, default: object
) -> None:
    assert encode(decode(changed(**{path: default}))) == encode(decode(json.dumps(SMALL)))


def test_absent_optional_parts_are_those_of_the_canonical_form() -> None:
    bare = {"engine": SMALL["engine"], "requests": SMALL["requests"]}
    assert encode(decode(json.dumps(bare))) == encode(decode(changed(events=[])))


@given(scenarios(), scenarios())
def test_different_scenarios_have_different_ids(one: Scenario, other: Scenario) -> None:
    assert (one == other) == (scenario_id(one) == scenario_id(other))


@given(scenarios())
def test_validation_accepts_valid_scenarios_and_changes_nothing(scenario: Scenario) -> None:
    assert validate(scenario) == scenario


# change, what the one line must say: field with index, value, and what is allowed
BAD = [
    ({"engine__colour": 1}, ["engine", "unknown field `colour`", "docs/scenario.md"]),
    ({"requests__1__prompt__len": 1}, ["requests[1].prompt", "unknown field `len`"]),
    ({"engine__policy": "lifo"}, ["engine.policy", '"lifo"']),
    ({"requests__0__prompt__length": "x"}, ["requests[0].prompt.length", '"x"', "Expected `int`"]),
    ({"requests__0__accept": [0, None]}, ["requests[0].accept[1]", "null", "Expected `int`"]),
    ({"requests__0__max_tokens": True}, ["requests[0].max_tokens", "true", "Expected `int`"]),
    ({"events__0__type": "stop"}, ["events[0].type", '"stop"']),
    ({"requests": 3}, ["requests", "3", "Expected `array`"]),
    ({"engine__max_model_len": 3}, ["engine.max_model_len = 3", "between 4 and 4096"]),
    ({"engine__block_size": 20}, ["engine.block_size = 20", "(8, 16, 32, 64, 128)"]),
    ({"engine__num_blocks": 2}, ["engine.num_blocks = 2", "write 4"]),
    ({"engine__max_num_batched_tokens": 7}, ["engine.max_num_batched_tokens = 7", "write 8"]),
    (
        {"engine__chunked_prefill": False, "engine__max_num_batched_tokens": 39},
        ["engine.max_num_batched_tokens = 39", "write 40", "chunked_prefill"],
    ),
    (
        {"engine__long_prefill_token_threshold": 41},
        ["long_prefill_token_threshold = 41", "exceed max_model_len; write 40"],
    ),
    ({"requests__0__prompt__length": 40}, ["requests[0].prompt.length = 40", "between 1 and 39"]),
    ({"requests__1__prompt__shared": 17}, ["requests[1].prompt.shared = 17", "between 0 and 16"]),
    ({"requests__0__max_tokens": 0}, ["requests[0].max_tokens = 0", "between 1 and 40"]),
    ({"requests__0__arrival": -1}, ["requests[0].arrival = -1", "between 0 and 2000"]),
    ({"requests__0__accept": []}, ["requests[0].accept (length) = 0", "between 1 and 16"]),
    ({"requests__0__accept": [9]}, ["requests[0].accept = 9", "between 0 and 8"]),
    ({"requests__1__id": 0}, ["requests[1].id = 0", "unique"]),
    ({"requests": []}, ["requests (count) = 0", "between 1 and 64"]),
    ({"events__0__request": 5}, ["events[0].request = 5", "no request has this id"]),
    ({"events__0__step": 2001}, ["events[0].step = 2001", "between 0 and 2000"]),
    ({"schema": 2}, ["schema 2", "reads schema 1", "upgrade schedfuzz"]),
]


@pytest.mark.parametrize("change, words", BAD, ids=[next(iter(change)) for change, _ in BAD])
def test_bad_input_is_one_line_with_field_value_and_cure(
    change: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        decode(changed(**change), "story.json")
    message = str(caught.value)
    assert message.startswith("story.json: ")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"nope", b'{"engine": NaN}'])
def test_malformed_json_is_said_to_be_so(raw: bytes) -> None:
    with pytest.raises(InputError, match="^story.json: not valid JSON"):
        decode(raw, "story.json")


@pytest.mark.parametrize("raw", ["[]", "[1,", "null", '"text"', "{}"])
def test_json_that_is_no_scenario_is_refused(raw: str) -> None:
    with pytest.raises(InputError, match="^story.json: "):
        decode(raw, "story.json")


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 40, "-1e400", "1.5"])
def test_a_number_that_no_field_can_hold_is_bad_input(number: str) -> None:
    raw = json.dumps(SMALL).replace('"max_tokens": 5', f'"max_tokens": {number}')
    with pytest.raises(InputError, match="^story.json: "):
        decode(raw, "story.json")


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_input_escapes_as_another_exception(raw: bytes | str) -> None:
    with pytest.raises(InputError):
        decode(raw)


def test_load_reads_a_file_and_names_it_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "story.json"
    path.write_text(pretty(decode(json.dumps(SMALL))))
    assert load(path) == decode(json.dumps(SMALL))
    path.write_text(changed(requests__0__max_tokens=0))
    with pytest.raises(InputError, match=r"story.json: requests\[0\].max_tokens = 0"):
        load(path)


def test_a_missing_or_unreadable_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone.json: no such scenario file; check the path"):
        load(tmp_path / "gone.json")
    with pytest.raises(InputError, match="cannot read it"):
        load(tmp_path)
