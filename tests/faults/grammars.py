"""Nouns: faults around grammars and canvases.

All in one transform, so that one broken process serves every test: the faults around grammars show
only for the requests 7, 8 and 9, that around canvases only for a diffusion model.
"""

import ast

MANAGER = "vllm.v1.structured_output"
SCHEDULER = "vllm.v1.core.sched.scheduler"
FAULTS = {
    "should_fill_bitmask": "if request.request_id == '8':\n    return False",
    "should_advance": "if request.request_id == '9':\n    return False",
}


def grammars(name: str, tree: ast.Module) -> ast.Module:
    """Lose the last bitmask row of 7, mask nothing for 8, feed nothing to the grammar of 9; pad a
    diffusion request like one with drafts."""
    if name == MANAGER:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in FAULTS:
                node.body = ast.parse(FAULTS[node.name]).body + node.body
        rows = "bitmask_tensor.numpy()"
        _replace(tree, rows, f"{rows}[:-1 if '7' in structured_output_request_ids else None]")
    if name == SCHEDULER:
        _replace(tree, "self.num_sampled_tokens_per_step > 0", "True")
    return tree


def _replace(tree: ast.Module, old: str, new: str) -> None:
    """Put an expression in the place of the only one with that text."""
    found = 0
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for index, part in enumerate(values):
                if isinstance(part, ast.expr) and ast.unparse(part) == old:
                    other = ast.parse(new, mode="eval").body
                    if isinstance(value, list):
                        value[index] = other
                    else:
                        setattr(node, field, other)
                    found += 1
    if found != 1:
        raise ValueError(f"{found} places with {old!r}")
