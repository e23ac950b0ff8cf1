"""Nouns: model directory: the config.json of a tiny model, for vLLM's own config creation."""

import json
import os
from pathlib import Path
from typing import Any

MODEL_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float32",
}


class _Played:
    """The model that a process plays by default: its name and how its config differs."""

    name = "schedfuzz-model"
    changes: dict[str, Any] = {}


def play(name: str, **changes: Any) -> None:
    """Choose the default model of this process, before its first engine."""
    _Played.name, _Played.changes = name, changes


def model_dir(suffix: str = "", **changes: Any) -> str:
    """Return a directory with the config of a tiny model, made on first use.

    `changes` are entries of its config.json that differ; each kind of model has its own `suffix`.
    """
    path = Path(os.environ["VLLM_CACHE_ROOT"]) / (_Played.name + suffix)
    path.mkdir(parents=True, exist_ok=True)
    config = path / "config.json"
    text = json.dumps(MODEL_CONFIG | _Played.changes | changes)
    if not config.exists() or config.read_text() != text:
        partial = path / f"config.json.{os.getpid()}"
        partial.write_text(text)
        partial.replace(config)
    return str(path)
