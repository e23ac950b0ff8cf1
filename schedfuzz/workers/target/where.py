"""Nouns: innermost function.

A crash is named by where in vLLM it happened, as module and qualified function, never by line.
"""

from types import TracebackType


def innermost(error: BaseException) -> str:
    """Return `module:qualname` of the deepest vLLM frame of an exception, or of the deepest."""
    trace: TracebackType | None = error.__traceback__
    found = last = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        last = f"{trace.tb_frame.f_globals.get('__name__', '?')}:{code.co_qualname}"
        if last.startswith("vllm."):
            found = last
        trace = trace.tb_next
    return found or last
