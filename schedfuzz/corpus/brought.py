"""Nouns: seeds: the scenarios that schedfuzz brings along, one readable example a dimension."""

from importlib import resources
from pathlib import Path


def seed_corpus() -> Path:
    """Return the directory of the seeds."""
    return Path(str(resources.files("schedfuzz.corpus") / "seeds"))
