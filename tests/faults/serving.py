"""Nouns: faults in who is served, and with how many draft slots.

All in one transform, so that one broken process serves every test: each fault shows only where a
scenario asks for what it breaks (a policy, a draft method).
"""

import ast

SCHEDULER = "vllm.v1.core.sched.scheduler"
QUEUE = "vllm.v1.core.sched.request_queue"


def serving(name: str, tree: ast.Module) -> ast.Module:
    """Skip the first runner under the priority policy; admit the last first under FCFS; forget the
    slots of DFlash and the lookahead of EAGLE."""
    if name == SCHEDULER:
        _replace(tree, "req_index", "0", "int(self.policy.value == 'priority')")
        _replace(tree, "draft_slots", None, "0")
        _replace(
            tree, "self.num_lookahead_tokens", None,
            "0 if getattr(vllm_config.speculative_config, 'method', '') == 'eagle' "
            "else vllm_config.num_lookahead_tokens",
        )  # fmt: skip
    if name == QUEUE:
        (queue,) = (
            node for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == "FCFSRequestQueue"
        )  # fmt: skip
        for node in ast.walk(queue):
            if isinstance(node, ast.FunctionDef) and node.name == "add_request":
                node.body = ast.parse("self.appendleft(request)").body
    return tree


def _replace(tree: ast.Module, target: str, value: str | None, new: str) -> None:
    """Give every assignment `target = value` (any value for None) a new right side."""
    found = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or value not in (None, ast.unparse(node.value)):
            continue
        if [ast.unparse(t) for t in node.targets] == [target]:
            node.value = ast.parse(new, mode="eval").body
            found += 1
    if not found:
        raise ValueError(f"no assignment to {target}")
