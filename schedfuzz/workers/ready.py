"""Nouns: ready target."""

from collections.abc import Callable

from schedfuzz.workers.build import ensure
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import Home
from schedfuzz.workers.overlay import overlay
from schedfuzz.workers.targets import Target


def ready(target: Target, home: Home, progress: Callable[[str], None]) -> Environment:
    """Return the environment that the target runs in; what of it is missing is built.

    Raises as `ensure` and `overlay`.
    """
    env = ensure(target.release, home, progress)
    return env if target.clone is None else overlay(*target.clone, env, home)
