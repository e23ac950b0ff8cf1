"""Pictures without vLLM: what the model reads, what fits, and how embeddings come from outside."""

from random import Random
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.request_relations import most_image
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import IMAGE, contents, prompt_tokens
from schedfuzz.fuzzer.dimensions.pictures import length_of, row
from schedfuzz.workers.target.ec_source import Source

ENGINE = Engine(128, 40, encoder_cache_size=24, max_num_encoder_input_tokens=20)
SHOWN = Request(0, Prompt(30), 4, images=(Image(4, 8, 1),))
TEXT = replace(SHOWN, images=())


def test_placeholders_stand_where_the_picture_is() -> None:
    tokens = prompt_tokens(SHOWN)
    assert tokens[4:12] == [IMAGE] * 8
    assert tokens[:4] + tokens[12:] == prompt_tokens(TEXT)[:4] + prompt_tokens(TEXT)[12:]


def test_the_model_reads_the_picture_and_not_its_placeholders() -> None:
    outputs = {}
    for name, images in (
        ("one", (Image(4, 8, 1),)), ("other", (Image(4, 8, 2),)), ("moved", (Image(5, 8, 1),)),
        ("none", ()),
    ):  # fmt: skip
        request = replace(SHOWN, images=images)
        outputs[name] = tuple(expected_outputs(Scenario(ENGINE, (request,)))[0])
    assert len(set(outputs.values())) == 4
    assert contents(TEXT, prompt_tokens(TEXT)) == prompt_tokens(TEXT)


def test_an_encoder_decoder_model_reads_a_picture_longer_than_its_prompt() -> None:
    request = Request(0, Prompt(3), 4, images=(Image(0, 20, 1),))
    read = contents(request, prompt_tokens(request))
    assert len(read) == 3
    assert read != contents(replace(request, images=(Image(0, 20, 2),)), prompt_tokens(request))


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, 20),
        ({"disable_chunked_mm_input": True, "max_num_batched_tokens": 16}, 15),
        ({"disable_chunked_mm_input": True, "long_prefill_token_threshold": 9}, 8),
        ({"disable_chunked_mm_input": True, "num_speculative_tokens": 3, "spec_method": "dflash",
          "max_num_batched_tokens": 16}, 12),
    ],
)  # fmt: skip
def test_a_picture_that_may_not_be_cut_fits_into_a_step(changes: dict, most: int) -> None:
    assert most_image(replace(ENGINE, **changes)) == most


def test_a_row_of_pictures_fits_its_prompt_and_same_items_are_same_pictures() -> None:
    for seed in range(200):
        images = row(Random(seed), ENGINE, 60, [0, 1, 2, 1])
        ends = [image.offset + image.length for image in images]
        starts = [image.offset for image in images]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert not ends or ends[-1] <= 60
        assert all(image.length == length_of(ENGINE, image.item) for image in images)


# -- embeddings from outside ---------------------------------------------------------------------

LATE = Request(1, Prompt(40), 4, images=(Image(4, 8, 1, delay=2), Image(20, 8, 2)))


@pytest.fixture
def source() -> Source:
    return Source(SimpleNamespace(step=5, requests={"1": LATE}))  # type: ignore[arg-type]


def test_a_picture_comes_its_delay_after_it_is_asked_for(source: Source) -> None:
    assert not source.awaited()
    assert not source.available("1", 0)
    assert source.awaited()
    source.runner.step = 6
    assert not source.available("1", 0)
    source.runner.step = 7
    assert source.available("1", 0)
    assert not source.awaited()


def test_what_is_computed_or_run_here_is_not_asked_for(source: Source) -> None:
    assert source.available("1", 12)
    assert source.due == {}


def test_a_picture_is_loaded_once_and_asked_for_again_when_it_was_given_up(source: Source) -> None:
    source.available("1", 0)
    source.runner.step = 7
    source.take("1", 0)
    source.take("1", 1)  # the engine's own encoder runs for this one
    assert source.loads([]) == {"picture-1-8": 8}
    assert source.loads([]) == {}
    assert source.available("1", 0)
    source.loads(["picture-1-8"])
    assert not source.arrived("picture-1-8")
    assert not source.available("1", 0)


def test_what_is_given_up_and_taken_in_one_step_stays(source: Source) -> None:
    source.available("1", 0)
    source.runner.step = 7
    source.take("1", 0)
    assert source.loads(["picture-1-8"]) == {"picture-1-8": 8}
    assert source.available("1", 0)
