"""The scenarios that schedfuzz brings along: readable, clean, each one what its name says."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.cli.source import start_pair
from schedfuzz.corpus import codec
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Scheduled, Trace
from schedfuzz.fuzzer.judge import CLEAN, judge
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
    "speculation_under_pressure": lambda trace: preempted(trace) and partly_accepted(trace),
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
    assert set(seeds) == set(SHOWS)
    with start_pair(parse_target("0.28.0"), parse_target("0.29.0")) as pair:
        for name, scenario in seeds.items():
            before, after = pair.run(scenario)
            assert SHOWS[name](before), name
            if name in KNOWN:
                assert [v.rule for t in (before, after) for v in t.violations] == [KNOWN[name]] * 2
                continue
            assert judge(before, after) == CLEAN, name
            assert before.outcome == "finished"
