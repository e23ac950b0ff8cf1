"""Nouns: Event, Abort, ResetPrefixCache, Pause, Resume, ThrottlePrefills.

What reaches an engine from outside at a step, apart from its requests.
"""

from typing import Literal

import msgspec


class Abort(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="abort"
):
    """The client leaves before `step`, or, with `in_flight`, while that step is executing."""

    step: int
    request: int
    in_flight: bool = False


class ResetPrefixCache(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag="reset_prefix_cache",
):
    """Before `step` the prefix cache is dropped; `preempt_running` first preempts what runs."""

    step: int
    preempt_running: bool = False


class Pause(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="pause"
):
    """Before `step` the scheduler is paused: requests are kept or aborted, caches cleared or not.

    It stays paused until a `Resume`, or until nothing else is to come.
    """

    step: int
    mode: Literal["keep", "abort"] = "keep"
    clear_cache: bool = False


class Resume(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="resume"
):
    """Before `step` a paused scheduler goes on."""

    step: int


class ThrottlePrefills(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True,
    tag="throttle_prefills",
):  # fmt: skip
    """For `steps` steps from `step` on prefills are held back, as data parallelism asks for."""

    step: int
    steps: int = 1


Event = Abort | ResetPrefixCache | Pause | Resume | ThrottlePrefills
