"""Nouns: the two faults that are not findings.

`InputError` is the user's (exit code 2), `InfraError` is the machine's; anything else that
escapes is our own fault (exit code 1).
"""


class InputError(Exception):
    """Bad input: one line that names the offending value and its cure."""


class InfraError(Exception):
    """The machine could not do it (install failed, process would not start, no disk)."""
