"""A hunt that keeps to some dimensions."""

from random import Random

import pytest

from schedfuzz.corpus.errors import InputError
from schedfuzz.fuzzer.dimensions import active
from schedfuzz.fuzzer.focus import NAMES, among, both_limits, focused
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.supported import Supported

# What another dimension cannot do without.
NEEDED = {"diffusion": {"V2 runner"}, "tight draft budget": {"adaptive threshold"}}
# These show only in company: with drafts or images.
BUILT_ON_OTHERS = {"tight draft budget", "widths by batch size", "EC connector"}


def shown(scenario) -> set[str]:
    on = active(scenario.engine, scenario.requests, scenario.events)
    return {dimension.name for dimension in on}


@pytest.mark.parametrize("name", NAMES)
def test_a_focus_leaves_out_what_it_does_not_name(name: str) -> None:
    supported = Supported(focused([name]))
    scenarios = [generate(Random(f"{name} {seed}"), among([name])) for seed in range(60)]
    others = [shown(supported.fit(scenario)) - {name} for scenario in scenarios]
    foreign = [one - NEEDED.get(name, set()) for one in others]
    assert sum(map(bool, foreign)) <= 6, foreign  # repair may bring one back
    if name not in BUILT_ON_OTHERS:
        assert any(name in shown(supported.fit(scenario)) for scenario in scenarios)


def test_without_names_everything_is_generated() -> None:
    seen = set().union(*(shown(generate(Random(seed), among(()))) for seed in range(300)))
    assert len(seen) > 20


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(InputError, match="'lora' is unknown; there are: .*LoRA"):
        focused(["lora"])


def test_both_limits_hold() -> None:
    one, other = (lambda scenario: "a", lambda scenario: None)
    assert both_limits(None, None) is None
    assert both_limits(one, None) is one and both_limits(None, other) is other
    both = both_limits(other, one)
    assert both is not None and both(generate(Random(0))) == "a"
