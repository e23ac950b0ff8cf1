"""Nouns: faults in the bookkeeping of vLLM's own model runner, and two in its scheduler.

All in one transform, so that one broken process serves every test: which fault shows is chosen by
the scenario's `max_num_seqs` (one by its `num_blocks`). Under a fault of the runner what the
scheduler sends is right in every step. No source of vLLM's stands here; each fault is found by the
name of what it changes.
"""

import ast
from collections.abc import Callable

# max_num_seqs of the scenario that shows the fault
WRONG_COLUMN = 11  # attention reads every request's second block where its first one is
WRONG_ROW = 12  # attention reads the second request's second block in the first one's row
SHIFTED_POSITION = 13  # with three requests in the batch, the second row's token is one too far
UNWRITTEN = 14  # the KV of position 41 goes to the null block
WRONG_HANDOFF = 15  # async: each row is given the token that another row sampled
LOST_MOVE = 16  # condensing the batch leaves the moved request's block table behind
SWAPPED_SAMPLES = 17  # what the rows sampled comes back in the wrong order
WRONG_TOKEN = 18  # the scheduler hands clients another token than the runner sampled
FEW_BLOCKS = 5  # num_blocks: the scheduler does not hold the blocks of a prefix hit

SCHEDULER = "vllm.v1.core.sched.scheduler"
BLOCK_POOL = "vllm.v1.core.block_pool"
RUNNER = "vllm.v1.worker.gpu_model_runner"
BATCH = "vllm.v1.worker.gpu_input_batch"
TABLE = "vllm.v1.worker.block_table"

_MISREAD = f"""
def _misread(seats, table):
    table = table.clone()
    if seats == {WRONG_COLUMN}:
        table[:, 1] = table[:, 0]
    if seats == {WRONG_ROW} and len(table) > 1:
        table[1, 1] = table[0, 1]
    return table
"""
_UNWRITTEN = f"""
if self.max_num_reqs == {UNWRITTEN}:
    self.slot_mapping.gpu[: len(positions)][positions == 41] = 0
"""
_SHIFTED = f"""
if self.max_num_reqs == {SHIFTED_POSITION} and num_reqs == 3:
    self.positions[1] += 1
"""
_HANDOFF = f"""
if self.max_num_reqs == {WRONG_HANDOFF} and self.input_batch.prev_sampled_token_ids is not None:
    tokens = self.input_batch.prev_sampled_token_ids
    self.input_batch.prev_sampled_token_ids = tokens.flip(0)
"""
_SWAPPED = f"""
if self.max_num_reqs == {SWAPPED_SAMPLES}:
    sampler_output.sampled_token_ids = sampler_output.sampled_token_ids.flip(0)
"""
_WRONG_TOKEN = f"""
if self.scheduler_config.max_num_seqs == {WRONG_TOKEN}:
    for sampled in model_runner_output.sampled_token_ids:
        if sampled:
            sampled[-1] = (sampled[-1] + 1) % 32
"""
_NOT_HELD = f"""
if self.num_gpu_blocks == {FEW_BLOCKS}:
    return
"""
_UNLESS_LOST = f"self.max_num_reqs != {LOST_MOVE}"


def faults(name: str, tree: ast.Module) -> ast.Module:
    """Break the runner's block tables, positions, hand-offs and rows, and the scheduler."""
    if name == TABLE:
        table = _class(tree, "BlockTable")
        _function(table, "compute_slot_mapping").body += _code(_UNWRITTEN)
        (read,) = _nodes(_function(table, "get_device_tensor"), ast.Return)
        call = _code("_misread(self.max_num_reqs, None)")[0].value  # type: ignore[attr-defined]
        call.args[1], read.value = read.value, call
        tree.body += _code(_MISREAD)
    if name == RUNNER:
        model_runner = _class(tree, "GPUModelRunner")
        inputs = _function(model_runner, "_prepare_inputs")
        _after(inputs, lambda text: text.startswith("self.positions["), _SHIFTED)
        _before(_function(model_runner, "_prepare_input_ids"), _HANDOFF)
        _before(_function(model_runner, "_bookkeeping_sync"), _SWAPPED)
    if name == SCHEDULER:
        _before(_function(_class(tree, "Scheduler"), "update_from_output"), _WRONG_TOKEN)
    if name == BLOCK_POOL:
        _before(_function(_class(tree, "BlockPool"), "touch"), _NOT_HELD)
    if name == BATCH:
        condense = _function(_class(tree, "InputBatch"), "condense")
        moves = [node for node in _nodes(condense, ast.Expr)
                 if ast.unparse(node).startswith("self.block_table.move_row(")]  # fmt: skip
        (move,) = moves
        test = _code(_UNLESS_LOST)[0].value  # type: ignore[attr-defined]
        move.value = ast.BoolOp(ast.And(), [test, move.value])
    return tree


def _code(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _nodes(root: ast.AST, kind: type) -> list:
    return [node for node in ast.walk(root) if isinstance(node, kind)]


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    (found,) = (node for node in _nodes(tree, ast.ClassDef) if node.name == name)
    return found


def _function(owner: ast.ClassDef, name: str) -> ast.FunctionDef:
    (found,) = (node for node in _nodes(owner, ast.FunctionDef) if node.name == name)
    return found


def _before(function: ast.FunctionDef, code: str) -> None:
    function.body = _code(code) + function.body


def _after(function: ast.FunctionDef, wanted: Callable[[str], bool], code: str) -> None:
    """Insert code behind the one assignment of a function's body whose text is wanted."""
    at = [index for index, node in enumerate(function.body)
          if isinstance(node, ast.Assign) and wanted(ast.unparse(node))]  # fmt: skip
    (index,) = at
    function.body[index + 1 : index + 1] = _code(code)
