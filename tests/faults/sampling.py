"""Nouns: faults in what vLLM's model runner keeps of the wishes and logprobs of its requests.

All in one transform, so that one broken process serves every test: which fault shows is chosen by
the scenario's `max_num_seqs`. Each fault is found by the name of what it changes.
"""

import ast

LEFT_MASK = 11  # condensing the batch leaves the moved request's allowed tokens behind
LEFT_PENALTY = 12  # ... and its presence penalty
PLACEHOLDERS = 13  # async: penalties see placeholders instead of the tokens sampled last
LOST_CHUNKS = 14  # the prompt logprobs so far are lost when a request is not in a step
TURNED_ROWS = 15  # the rows of a batch's logprobs are one place off
SHIFTED_PROMPT = 16  # prompt logprobs are computed from the positions before theirs

RUNNER = "vllm.v1.worker.gpu_model_runner"
BATCH = "vllm.v1.worker.gpu_input_batch"

_PLACEHOLDERS = f"""
if self.max_num_reqs == {PLACEHOLDERS}:
    return
"""
_LOST_CHUNKS = f"""
if self.max_num_reqs == {LOST_CHUNKS}:
    for req_id in self.requests.keys() - scheduler_output.num_scheduled_tokens.keys():
        self.requests[req_id].in_progress_prompt_logprobs_cpu = None
"""
_TURNED_ROWS = f"""
tensors = sampler_output.logprobs_tensors
if self.max_num_reqs == {TURNED_ROWS} and tensors is not None:
    sampler_output.logprobs_tensors = tensors._replace(logprobs=tensors.logprobs.roll(1, 0))
"""
_SHIFTED_PROMPT = f"""
if self.max_num_reqs == {SHIFTED_PROMPT}:
    hidden_states = hidden_states.roll(1, 0)
"""


def sampling(name: str, tree: ast.Module) -> ast.Module:
    """Break the moves of wishes, the outputs that penalties see, and the rows of logprobs."""
    if name == BATCH:
        condense = _function(tree, "condense")
        _skip(condense, "self.allowed_token_ids_mask_cpu_tensor[empty_index]", LEFT_MASK)
        _skip(condense, "self.presence_penalties_cpu[empty_index]", LEFT_PENALTY)
        _prefix(tree, "update_async_output_token_ids", _PLACEHOLDERS)
    if name == RUNNER:
        _prefix(tree, "_update_states", _LOST_CHUNKS)
        _prefix(tree, "_bookkeeping_sync", _TURNED_ROWS)
        _prefix(tree, "_get_prompt_logprobs_dict", _SHIFTED_PROMPT)
    return tree


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise ValueError(f"no function {name}")


def _prefix(tree: ast.Module, function: str, code: str) -> None:
    """Put code before a function's body, behind its docstring or not."""
    node = _function(tree, function)
    node.body = ast.parse(code).body + node.body


def _skip(function: ast.FunctionDef, target: str, seats: int) -> None:
    """Do an assignment only in batches of another number of seats. Raises ValueError if absent."""
    for node in ast.walk(function):
        for body in (getattr(node, "body", []), getattr(node, "orelse", [])):
            for index, statement in enumerate(body):
                if (
                    isinstance(statement, ast.Assign)
                    and ast.unparse(statement.targets[0]) == target
                ):
                    guard = ast.parse(f"if self.max_num_reqs != {seats}:\n    pass").body[0]
                    assert isinstance(guard, ast.If)
                    guard.body = [statement]
                    body[index] = guard
                    return
    raise ValueError(f"nothing assigns {target}")
