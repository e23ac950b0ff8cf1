"""schedfuzz: differential fuzzing of vLLM's scheduler between two real releases."""

__version__ = "0.1.0"
