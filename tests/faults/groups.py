"""Nouns: faults of KV groups.

All stand side by side in one transform: each concerns a window, a block size or a max_model_len
that only one story has, so that no story sees another one's fault.
"""

import ast

MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"
MANAGER = "vllm.v1.core.kv_cache_manager"
# (class, function) -> what it does first
FAULTS = {
    MANAGERS: {
        # Blocks are let go of a block too early.
        ("SlidingWindowManager", "get_num_skipped_tokens"): "if self.sliding_window == 21:\n"
        "    num_computed_tokens += 16",
        # A state that another request only computes in this step is taken for one that is there.
        ("MambaManager", "get_num_blocks_to_allocate"): "if self.block_size == 8:\n"
        "    self.cached_blocks_this_step.clear()",
        ("FullAttentionManager", "get_num_common_prefix_blocks"): "if self.block_size == 32:\n"
        "    return 1",
    },
    MANAGER: {
        ("KVCacheManager", "take_new_block_ids"): "if self.max_model_len == 122:\n"
        "    for manager in self.coordinator.single_type_managers:\n"
        "        manager.take_new_block_ids()\n"
        "    return []",
        ("KVCacheManager", "take_kv_cache_block_copies"): "if self.max_model_len == 123:\n"
        "    for manager in self.coordinator.single_type_managers:\n"
        "        manager.take_pending_cow_copies()\n"
        "    return [], []",
    },
}


def groups(name: str, tree: ast.Module) -> ast.Module:
    """Every fault of this file."""
    for (owner, function), code in FAULTS.get(name, {}).items():
        (found,) = (
            node
            for scope in tree.body
            if isinstance(scope, ast.ClassDef) and scope.name == owner
            for node in scope.body
            if isinstance(node, ast.FunctionDef) and node.name == function
        )
        found.body = ast.parse(code).body + found.body
    return tree
