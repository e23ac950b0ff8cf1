"""Nouns: broken rule, hang, too long: what ends a run from within vLLM's own step."""

from schedfuzz.corpus.trace import Violation


class BrokenRule(Exception):
    """A fatal violation, raised through vLLM's own step so that nothing runs after it."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.detail)
        self.violation = violation


class TooLong(Exception):
    """A story that needs more than its CPU time without hanging anywhere: nobody's fault."""


class Hang(BaseException):
    """The CPU limit of one scenario; not an Exception, so that vLLM's handlers let it pass."""
