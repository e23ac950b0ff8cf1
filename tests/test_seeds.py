"""The scenarios that schedfuzz brings along: readable, clean, each one what its name says."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.cli.source import start_pair
from schedfuzz.corpus import codec
from schedfuzz.corpus.sampling import allowed_tokens
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.tokens import STOP, VOCAB
from schedfuzz.corpus.trace import Scheduled, Trace
from schedfuzz.fuzzer.judge import CLEAN, judge
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

FILES = sorted(seed_corpus().glob("*"))


def shares(trace: Trace) -> list[Scheduled]:
    return [share for step in trace.steps for share in step.scheduled]


def happened(trace: Trace) -> set[str]:
    return {event for step in trace.steps for event in step.events}


def partly_accepted(trace: Trace) -> bool:
    return any(0 < share.sampled <= share.drafts for share in shares(trace))


def preempted(trace: Trace) -> bool:
    resumed = any(share.path == "resumed" for share in shares(trace))
    return resumed and any(step.preempted for step in trace.steps)


def denoises(trace: Trace) -> bool:
    canvases = [share for share in shares(trace) if share.drafts]
    return any(not share.sampled for share in canvases) and any(x.sampled > 1 for x in canvases)


SHOWS: dict[str, Callable[[Trace], bool]] = {
    "abort_in_flight": lambda trace: "abort 0 in flight" in happened(trace),
    "async_speculation": partly_accepted,
    "chunked_prefill": lambda trace: any(not share.sampled for share in shares(trace)),
    "ec_connector": lambda trace: bool(trace.steps[1].waiting) and not trace.steps[1].scheduled,
    "encoder_decoder": lambda trace: all(x.start == 0 for x in shares(trace) if x.path == "new"),
    "images": lambda trace: (0, 0, 20) in [(x.request, x.start, x.tokens) for x in shares(trace)],
    "logprobs": lambda trace: len([x for x in shares(trace) if x.start < 20]) > 2,
    "pause_and_resume": lambda trace: {"pause keep clearing", "resume"} <= happened(trace),
    "pooling": lambda trace: not any(x.tokens for x in trace.outputs),
    "sampling": lambda trace: (
        set(trace.outputs[0].tokens) <= set(allowed_tokens(1)) < set(range(VOCAB)) | {STOP}
    ),
    "stops": lambda trace: {x.finish_reason for x in trace.outputs} == {"stop"},
    "streaming_session": lambda trace: {"turn 0", "close 0"} <= happened(trace),
    "throttled_prefills": lambda trace: [x.request for x in trace.steps[3].scheduled] == [0],
    "lora": lambda trace: [x.request for x in shares(trace) if x.path == "new"] == [0, 2, 3, 1],
    "diffusion": denoises,
    "structured_output": lambda trace: any(x.finish_reason == "stop" for x in trace.outputs),
    "kv_handoffs": lambda trace: {"send 0", "send 0 complete"} <= happened(trace),
    "kv_offloading": lambda trace: "load 1 complete" in happened(trace),
    "kv_loads": lambda trace: {"load 0 complete", "load 2 failed"} <= happened(trace),
    "ngram_drafts": lambda trace: {0, 1, 3} <= {x.drafts for x in shares(trace)},
    "draft_widths": lambda trace: {1, 3} <= {x.drafts for x in shares(trace)},
    "dflash_drafts": lambda trace: (
        (1, 0, 22) in [(x.request, x.start, x.tokens) for x in shares(trace)]
    ),
    "model_runner_v2": preempted,
    "pipeline_ranks": lambda trace: all(len(step.scheduled) < 3 for step in trace.steps),
    "watermark": lambda trace: any(step.waiting and step.free_blocks >= 6 for step in trace.steps),
    "mamba_align": lambda trace: any(x.tokens == 16 and not x.sampled for x in shares(trace)),
    "prefix_match_unit": lambda trace: 28 in [x.start for x in shares(trace) if x.path == "new"],
    "sliding_window": lambda trace: any(
        one.free_blocks < two.free_blocks and not two.finished for one, two in pairwise(trace.steps)
    ),
    "prefix_sharing": lambda trace: any(x.path == "new" and x.start for x in shares(trace)),
    "priority_preemption": preempted,
    "reset_under_load": lambda trace: "reset preempting" in happened(trace) and preempted(trace),
    "seats_saturated": lambda trace: any(step.waiting for step in trace.steps),
    "repetition": lambda trace: {x.finish_reason for x in trace.outputs} == {"repetition"},
    "single_group_connector": lambda trace: (
        {"load 0 complete", "send 1 complete"} <= happened(trace)
    ),
    "speculation_under_pressure": lambda trace: preempted(trace) and partly_accepted(trace),
}
# What only releases after 0.29 have, or do so.
LATER: dict[str, Callable[[Trace], bool]] = {
    "active_seats": lambda trace: [len(step.scheduled) for step in trace.steps[:4]] == [2] * 4,
    "load_beyond_a_hit": lambda trace: (
        "load 1: 16..51" in happened(trace)
        and 28 in [x.start for x in shares(trace) if x.path == "new"]
    ),
    "named_pictures": lambda trace: (
        [x.finish_reason for x in trace.outputs] == ["length", "length", "error", "error"]
    ),
    "prefix_retention": lambda trace: 32 in [x.start for x in shares(trace) if x.path == "new"],
    "shared_prefix_checkpoint": lambda trace: (
        28 in [x.start for x in shares(trace) if x.path == "new"]
    ),
    "state_checkpoints": lambda trace: (
        {(0, 70), (64, 26)} <= {(x.start, x.tokens) for x in shares(trace) if x.path == "new"}
    ),
}
# What every release breaks with a story of this kind: vLLM issue #55733.
KNOWN = {"encoder_decoder": "encoder-slots"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_seed_is_pretty_and_far_from_max_model_len(file) -> None:
    scenario = codec.load(file)
    assert file.read_text() == codec.pretty(scenario)
    engine = scenario.engine
    longest = max(request.prompt.length + request.max_tokens for request in scenario.requests)
    assert longest + 2 * engine.num_speculative_tokens <= engine.max_model_len - 32


@pytest.mark.vllm
def test_seeds_are_clean_and_show_what_they_are_named_for(environment_028, environment_029) -> None:
    seeds: dict[str, Scenario] = {file.stem: codec.load(file) for file in FILES}
    assert set(seeds) == set(SHOWS) | set(LATER)
    with start_pair(parse_target("0.28.0"), parse_target("0.29.0")) as pair:
        for name, scenario in seeds.items():
            if name in LATER:
                continue
            before, after = pair.run(scenario)
            assert SHOWS[name](before), name
            if name in KNOWN:
                assert [v.rule for t in (before, after) for v in t.violations] == [KNOWN[name]] * 2
                continue
            assert judge(before, after) == CLEAN, name
            assert before.outcome == "finished"


@pytest.mark.vllm
def test_later_seeds_are_clean_and_show_what_they_are_named_for(shared_home: Home) -> None:
    target = parse_target("0.32.0")
    with Pair(target, target, shared_home, print) as pair:
        for name, shows in LATER.items():
            trace, _ = pair.run(codec.load(seed_corpus() / f"{name}.json"))
            assert trace.outcome == "finished", (name, trace)
            assert shows(trace), name
