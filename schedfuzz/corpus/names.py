"""Nouns: stored name, what to type.

The database names a target by what it is, with a digest where it has files of its own; a command
line wants what finds it again.
"""

CLONE_MARK = "#"


def typed_name(name: str) -> str:
    """Return what to type for a stored target name; a transform's directory is for the reader."""
    if CLONE_MARK in name:
        release, _, commit = name.partition(CLONE_MARK)
        return f"{release}:PATH/TO/CLONE{CLONE_MARK}{commit}"
    if "+" not in name:
        return name.rpartition("@")[0] or name
    release, _, transform = name.partition("+")
    return f"{release}+PATH/TO/{transform.rpartition('@')[0]}"


def typed_pair(before: str, after: str) -> str:
    """Return what to type for two stored target names."""
    return f"{typed_name(before)} {typed_name(after)}"


def holds_no_path(before: str, after: str) -> bool:
    """Return whether a verb that is given a finding must be told its targets too."""
    return any(mark in before + after for mark in ("+", CLONE_MARK))
