"""Nouns: deliberate faults.

Source transforms that break a correct release in one known way while it is imported. Nothing of
vLLM's source stands here: a fault is found by the shape of the statement it changes. Each transform
ends with an error when it found nothing to break, so that a test cannot pass by missing.
"""

import ast
from collections.abc import Callable

SCHEDULER = "vllm.v1.core.sched.scheduler"
BLOCK_POOL = "vllm.v1.core.block_pool"


def careless_fix(name: str, tree: ast.Module) -> ast.Module:
    """A padded request without room is left in the queue instead of being run unpadded.

    0.28.0 leaves it there one token too late; 0.29.0 runs it unpadded, in the branch this adds to.
    """
    if name != SCHEDULER:
        return tree
    return _changed(tree, _break_without_room)


def _break_without_room(node: ast.AST) -> bool:
    if not isinstance(node, ast.If) or "max_model_len" not in ast.unparse(node.test):
        return False
    if "request_token_budget" in ast.unparse(node.test):
        for part in ast.walk(node.test):
            if isinstance(part, ast.Compare) and "max_model_len" in ast.unparse(part):
                part.ops = [ast.GtE()]
                return True
    if "padded_num_tokens" in ast.unparse(node.test) and not node.orelse:
        node.orelse = [ast.Break()]
        return True
    return False


def blocks_not_touched(name: str, tree: ast.Module) -> ast.Module:
    """A prefix hit does not hold its blocks, so they are given to somebody else."""
    return _emptied(tree, "touch") if name == BLOCK_POOL else tree


def blocks_not_freed(name: str, tree: ast.Module) -> ast.Module:
    """Finished requests keep their blocks."""
    return _emptied(tree, "free_blocks") if name == BLOCK_POOL else tree


def wrong_token(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler mixes up one token that it hands to the client."""
    change = "for sampled in model_runner_output.sampled_token_ids:\n"
    change += "    if sampled:\n        sampled[-1] = (sampled[-1] + 1) % 32"
    return _prefixed(tree, "update_from_output", change) if name == SCHEDULER else tree


def endless_schedule(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler spins when a third request is there."""
    spin = "while len(self.requests) > 2:\n    pass"
    return _prefixed(tree, "schedule", spin) if name == SCHEDULER else tree


def dying_process(name: str, tree: ast.Module) -> ast.Module:
    """The process aborts when a third request is there, as after a fault in native code."""
    die = "if len(self.requests) > 2:\n    import os\n    os.abort()"
    return _prefixed(tree, "schedule", die) if name == SCHEDULER else tree


def leaving_process(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler ends the process with the code that a worker ends with when all is done."""
    leave = "if len(self.requests) > 2:\n    import os\n    os._exit(0)"
    return _prefixed(tree, "schedule", leave) if name == SCHEDULER else tree


def unspeakable_error(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler raises an error whose text cannot be had, and whose name steers a terminal."""
    error = (
        "if len(self.requests) > 2:\n"
        "    def text(error):\n        raise ValueError\n"
        "    raise type('Bad\\x1b', (RuntimeError,), {'__str__': text})"
    )
    return _prefixed(tree, "schedule", error) if name == SCHEDULER else tree


def hostile_error(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler raises an error whose text is no Unicode."""
    error = "if len(self.requests) > 2:\n    raise RuntimeError('\\ud800 \\x00 \\x1b[31m')"
    return _prefixed(tree, "schedule", error) if name == SCHEDULER else tree


def slow_schedule(name: str, tree: ast.Module) -> ast.Module:
    """Each pass takes its time, and none of them too much."""
    spin = (
        "import time\nend = time.process_time() + 0.05\n"
        "while len(self.requests) > 2 and time.process_time() < end:\n    pass"
    )
    return _prefixed(tree, "schedule", spin) if name == SCHEDULER else tree


def killed_process(name: str, tree: ast.Module) -> ast.Module:
    """The process is killed when a third request is there, as by the out-of-memory killer."""
    die = "if len(self.requests) > 2:\n    import os\n    os.kill(os.getpid(), 9)"
    return _prefixed(tree, "schedule", die) if name == SCHEDULER else tree


def hoarding_schedule(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler allocates without end when a third request is there."""
    hoard = "hoard = []\nwhile len(self.requests) > 2:\n    hoard.append(bytearray(1 << 24))"
    return _prefixed(tree, "schedule", hoard) if name == SCHEDULER else tree


def noisy_schedule(name: str, tree: ast.Module) -> ast.Module:
    """The scheduler prints a megabyte in each step, half of it to each standard stream."""
    noise = "import sys\nprint('o' * 500_000)\nsys.stderr.write('e' * 500_000)"
    return _prefixed(tree, "schedule", noise) if name == SCHEDULER else tree


def no_transform(name: str, tree: ast.Module) -> ast.Module:
    """Fails on what it is given, as a transform for another release does."""
    raise LookupError(f"nothing to change in {name}")


def _changed(tree: ast.Module, change: Callable[[ast.AST], bool]) -> ast.Module:
    if sum(change(node) for node in ast.walk(tree)) != 1:
        raise ValueError("the fault did not find the one place it changes")
    return tree


def _emptied(tree: ast.Module, function: str) -> ast.Module:
    def empty(node: ast.AST) -> bool:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = [ast.Return()]
            return True
        return False

    return _changed(tree, empty)


def _prefixed(tree: ast.Module, function: str, code: str) -> ast.Module:
    def prefix(node: ast.AST) -> bool:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = ast.parse(code).body + node.body
            return True
        return False

    return _changed(tree, prefix)
