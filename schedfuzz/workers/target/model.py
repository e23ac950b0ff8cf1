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


def model_dir(name: str = "schedfuzz-model", **changes: Any) -> str:
    """Return a directory with the config of a tiny model, made on first use.

    `changes` are entries of its config.json that differ; each kind of model has its own `name`.
    """
    path = Path(os.environ["VLLM_CACHE_ROOT"]) / name
    path.mkdir(parents=True, exist_ok=True)
    config = path / "config.json"
    if not config.exists():
        partial = path / f"config.json.{os.getpid()}"
        partial.write_text(json.dumps(MODEL_CONFIG | changes))
        partial.replace(config)
    return str(path)
