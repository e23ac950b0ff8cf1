"""Nouns: faults in what reaches clients.

All in one transform, so that one broken process serves every test: each fault shows only where a
scenario asks for what it breaks (logprobs, a pooling model), or for a request with its priority.
"""

import ast

SCHEDULER = "vllm.v1.core.sched.scheduler"
REQUEST = "vllm.v1.request"
STOPS = "vllm.v1.core.sched.utils"
KEEPS_THE_LAST, SAYS_MORE, NAMES_ANOTHER_REASON = 1, 2, 3

SESSION = f"""
if session.priority == {KEEPS_THE_LAST}:
    session.num_computed_tokens = session.num_tokens
if session.priority == {SAYS_MORE}:
    session.max_tokens += 1
"""
OUTPUT = """
lists = model_runner_output.logprobs
if lists is not None:
    parts = [part[::-1] for part in lists[:3]]
    model_runner_output.logprobs = type(lists)(*parts, *lists[3:])
if model_runner_output.prompt_logprobs_dict:
    model_runner_output.prompt_logprobs_dict.clear()
if model_runner_output.pooler_output:
    model_runner_output.pooler_output.reverse()
"""
REASON = f"""
if self.priority == {NAMES_ANOTHER_REASON} and self.status == RequestStatus.FINISHED_LENGTH_CAPPED:
    return RequestStatus.get_finished_reason(RequestStatus.FINISHED_STOPPED)
"""


LOOP = "if params.max_pattern_size == 61:\n    return False"


def clients(name: str, tree: ast.Module) -> ast.Module:
    """Keep a turn's last token; let a turn say one token more; turn logprobs and pooled answers of
    a batch round; lose prompt logprobs; say stop for length; let some loops go on."""
    if name == SCHEDULER:
        _prefix(tree, "_update_request_as_session", SESSION)
        _prefix(tree, "update_from_output", OUTPUT)
    if name == REQUEST:
        _prefix(tree, "get_finished_reason", REASON)
    if name == STOPS:
        _prefix(tree, "check_sequence_repetition", LOOP)
    return tree


def _prefix(tree: ast.Module, function: str, code: str) -> None:
    """Put code before the first function of this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = ast.parse(code).body + node.body
            return
    raise ValueError(f"no function {function}")
