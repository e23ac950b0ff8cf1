"""Nouns: faults in what a scheduler does with a KV connector.

All in one transform, so that one broken process serves every test. Which fault is on follows from
the number of seats, which none of the stories fills.
"""

import ast

SCHEDULER = "vllm.v1.core.sched.scheduler"
OFFLOADING = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler"
SEATS = {
    "load-blocks": 11,
    "load-zeroed": 12,
    "load-into-used-block": 13,
    "load-overwritten": 14,
    "failed-load-delivered": 15,
    "handoff-blocks": 16,
    "handoff-content": 17,
    "requests-left": 18,
    "load-announced": 20,
    "store-overwritten": 19,  # the connector's own fault, whatever the seats
}
LOADING = "(r for r in self.requests.values() if r.status.name == 'WAITING_FOR_REMOTE_KVS')"


def connector(name: str, tree: ast.Module) -> ast.Module:
    """Reserve draft slots in a load; deny loads within a step; zero or free blocks under load; free
    at once what a step in flight writes; overlook failed blocks; hand off all blocks; free them
    before they are sent; go to sleep over it."""
    if name == OFFLOADING:
        _no_waiting_for_stores(tree)
    if name != SCHEDULER:
        return tree
    _assigned(tree, "schedule", "limit_lookahead_tokens", "{old} and not " + _on("load-blocks"))
    _first(
        tree, "_update_after_schedule",
        f"if {_on('load-zeroed')}:\n"
        f"    scheduler_output.new_block_ids_to_zero = [block for r in {LOADING} for block in "
        "self.kv_cache_manager.get_block_ids(r.request_id)[0]]\n"
        f"if {_on('load-announced')}:\n    scheduler_output.has_sync_kv_loads = False\n"
        f"if {_on('load-overwritten')}:\n"
        f"    for r in {LOADING}:\n        self.kv_cache_manager.free(r)",
    )  # fmt: skip
    _first(
        tree, "_free_request_blocks",
        f"if {_on('load-into-used-block')}:\n    return self.kv_cache_manager.free(request)",
    )  # fmt: skip
    _first(tree, "_handle_invalid_blocks", _returns("failed-load-delivered", "set()"))
    _assigned(
        tree, "_connector_finished", "block_ids",
        "self.kv_cache_manager.get_block_ids(request.request_id) "
        f"if {_on('handoff-blocks')} else {{old}}",
    )  # fmt: skip
    for node in ast.walk(_function(tree, "_free_request")):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "not delay_free_blocks":
            node.test = _expression(f"{ast.unparse(node.test)} or {_on('handoff-content')}")
    _first(tree, "has_finished_requests", _returns("requests-left", "bool(self.finished_req_ids)"))
    return tree


def _no_waiting_for_stores(tree: ast.Module) -> None:
    (found,) = (
        node for node in ast.walk(_function(tree, "build_connector_meta"))
        if isinstance(node, ast.keyword) and node.arg == "jobs_to_flush"
    )  # fmt: skip
    found.value = _expression("set()")


def _on(rule: str) -> str:
    return f"self.max_num_running_reqs == {SEATS[rule]}"


def _returns(rule: str, value: str) -> str:
    return f"if {_on(rule)}:\n    return {value}"


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    (found,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return found


def _first(tree: ast.Module, function: str, code: str) -> None:
    """Put code in front of a function's own."""
    body = _function(tree, function)
    body.body = ast.parse(code).body + body.body


def _assigned(tree: ast.Module, function: str, target: str, new: str) -> None:
    """Give the one assignment to `target` in a function a new right side, made of the {old} one."""
    (found,) = (
        node for node in ast.walk(_function(tree, function))
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [target]
    )  # fmt: skip
    found.value = _expression(new.format(old=f"({ast.unparse(found.value)})"))
