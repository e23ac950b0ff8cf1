"""Nouns: faults of the encoder cache, of cross attention and of adapters.

All stand side by side in one transform: each concerns the pictures of one item number, a model or a
cache that only one story has, so that no story sees another one's fault.
"""

import ast

MANAGER = "vllm.v1.core.encoder_cache_manager"
SCHEDULER = "vllm.v1.core.sched.scheduler"
HASHES = "vllm.v1.core.kv_cache_utils"
KV_MANAGER = "vllm.v1.core.kv_cache_manager"

SHOWN = 'request.mm_features[input_id].identifier.startswith("picture-{}-")'
# (class, "" for none; function) -> what it does first
MANAGER_FAULTS = {
    ("EncoderCacheManager", "check_and_update_cache"): f"if {SHOWN.format(901)}:\n    return True",
    ("EncoderCacheManager", "can_allocate"): f"if {SHOWN.format(902)}:\n"
    "    encoder_compute_budget += 100",
    ("EncoderCacheManager", "get_freed_mm_hashes"): 'self.freed = [name for name in self.freed '
    'if not name.startswith("picture-903-")]',
    ("EncoderCacheManager", "free_encoder_input"): f"if {SHOWN.format(905)}:\n    return\n"
    f"if {SHOWN.format(906)}:\n    self.num_free_slots += 100",
}  # fmt: skip
SCHEDULER_FAULTS = {
    ("Scheduler", "_free_encoder_inputs"): "for input_id in range(len(request.mm_features)):\n"
    f"    if {SHOWN.format(904)}:\n"
    "        self.encoder_cache_manager.free_encoder_input(request, input_id)",
}
HASH_FAULTS = {
    ("", "_gen_mm_extra_hash_keys"): "return [], start_mm_idx",
    ("", "_gen_lora_extra_hash_keys"): "return []",
}
KV_FAULTS = {
    ("KVCacheManager", "allocate_slots"): "num_encoder_tokens = min(num_encoder_tokens, 16)"
}
FAULTS = {
    MANAGER: MANAGER_FAULTS, SCHEDULER: SCHEDULER_FAULTS, HASHES: HASH_FAULTS,
    KV_MANAGER: KV_FAULTS,
}  # fmt: skip


def encoder(name: str, tree: ast.Module) -> ast.Module:
    """Every fault of this file."""
    for (owner, function), code in FAULTS.get(name, {}).items():
        _prefix(tree, owner, function, code)
    if name == SCHEDULER:
        _admit_any_adapter(tree)
    return tree


def untold(name: str, tree: ast.Module) -> ast.Module:
    """Give up encoder outputs without telling the EC connector (0.30.0 on)."""
    if name == SCHEDULER:
        code = "self.encoder_cache_manager.free_encoder_input(request, input_id)\nreturn"
        _prefix(tree, "Scheduler", "_free_encoder_input", code)
    return tree


def _prefix(tree: ast.Module, owner: str, function: str, code: str) -> None:
    scopes = [tree] if not owner else [
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner
    ]  # fmt: skip
    (found,) = (
        node
        for scope in scopes
        for node in scope.body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    found.body = ast.parse(code).body + found.body


def _admit_any_adapter(tree: ast.Module) -> None:
    """Forget the limit where a waiting request is looked at."""
    (found,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and "max_loras" in ast.unparse(node)
    )
    found.comparators = [ast.Constant(-1)]
