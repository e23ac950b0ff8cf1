"""The real runner: vLLM's own worker and model runner, played on a model that can be checked."""
