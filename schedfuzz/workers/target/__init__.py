"""Inside a target's environment: standard library, msgspec, vLLM and `corpus` only."""
