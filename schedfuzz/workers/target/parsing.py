"""Nouns: parsed config: what vLLM reads from a model directory's config.json.

Half of the time that a VllmConfig takes is spent on parsing one of a handful of small files.
"""

import copy
import functools
from pathlib import Path
from typing import Any


def parse_once() -> None:
    """Have each content of a config.json parsed once per process; callers get copies."""
    from vllm.transformers_utils.config import HFConfigParser

    parse = HFConfigParser.parse
    known: dict[tuple[str, str], Any] = {}

    @functools.wraps(parse)
    def parse_or_copy(parser: Any, model: Any, *args: Any, **options: Any) -> Any:
        key = (Path(model, "config.json").read_text(), repr((str(model), args, options)))
        if key not in known:
            known[key] = parse(parser, model, *args, **options)
        return copy.deepcopy(known[key])

    HFConfigParser.parse = parse_or_copy
