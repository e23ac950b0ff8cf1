"""Scenarios as pytest cases, on the vLLM of the current environment: the plugin and its driver."""
