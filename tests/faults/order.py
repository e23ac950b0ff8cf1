"""Nouns: a fault of vLLM's own model runner that changes nothing but an order.

Attention reads the first two blocks of a request in each other's place, from the step on in which
all that is computed lies behind both. So whatever is read is the request's own, and its sum too.
"""

import ast

TABLE = "vllm.v1.worker.block_table"
BEHIND = 64  # two blocks of 32 tokens

_NOTED = """
self.first = positions[query_start_loc[:num_reqs].long()].clone()
"""
_SWAPPED = f"""
def _swapped(first, table):
    table = table.clone()
    late = (first[: len(table)] >= {BEHIND}).nonzero().flatten()
    table[late, :2] = table[late, :2].flip(1)
    return table
"""


def order(name: str, tree: ast.Module) -> ast.Module:
    """Have attention read two blocks in the wrong order."""
    if name == TABLE:
        (table,) = (node for node in tree.body
                    if isinstance(node, ast.ClassDef) and node.name == "BlockTable")  # fmt: skip
        functions = {node.name: node for node in table.body if isinstance(node, ast.FunctionDef)}
        noting = functions["compute_slot_mapping"]
        noting.body = ast.parse(_NOTED).body + noting.body
        (read,) = (node for node in ast.walk(functions["get_device_tensor"])
                   if isinstance(node, ast.Return))  # fmt: skip
        call = ast.parse("_swapped(self.first, None)").body[0].value  # type: ignore[attr-defined]
        call.args[1], read.value = read.value, call
        tree.body += ast.parse(_SWAPPED).body
    return tree
