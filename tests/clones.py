"""Nouns: a local clone of vLLM, made from two installed releases.

Its first commit is 0.28.0, its last 0.29.0; between them lie commits that change nothing that runs,
some that cannot be imported, the move to 0.29.0 without the mending of the padding bug (PR #53962),
and that mending. Nothing of vLLM is kept anywhere but in the folder that the test has made.
"""

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

from schedfuzz.workers.environment import environment
from schedfuzz.workers.home import Home

OLDER, NEWER = "0.28.0", "0.29.0"
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
NEUTRAL = "vllm/v1/core/sched/interface.py"
IGNORED = "*.so\n__pycache__/\nvllm/_version.py\nvllm/vllm_flash_attn/\nvllm/third_party/\n"


@dataclass(frozen=True)
class Clone:
    """A repository, and the commit that mends the bug; `commits` are oldest first."""

    path: Path
    commits: list[str]
    mended: str

    def git(self, *arguments: str) -> str:
        """Run git in it and return what it says."""
        return git(self.path, *arguments)


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Run git in a folder and return what it says."""
    settings = ("user.name=a", "user.email=a@localhost", "init.defaultBranch=main")
    identity = [part for text in settings for part in ("-c", text)]
    command = ["git", "-C", str(path), *identity, *arguments]
    said = subprocess.run(command, input=stdin, capture_output=True, check=True)
    return said.stdout.decode(errors="replace").strip()


def make_clone(
    path: Path, commits: int = 200, mended_at: int = 137, moved_at: int = 60,
    broken: frozenset[int] = frozenset(), share: float = 1.0,
) -> Clone:  # fmt: skip
    """Return a clone of so many commits; with the bug only a `share` of runs shows it."""
    older, newer = sources(OLDER), sources(NEWER)
    home = newer[SCHEDULER]
    faulty = bring_back(home.decode(), share)
    script = _Script()
    script.commit("release 0.28.0", older | {".gitignore": IGNORED.encode()})
    if share < 1:
        script.commit("older with the bug now and then", newer | {SCHEDULER: faulty}, older)
        older, moved_at = newer | {SCHEDULER: faulty}, 1
    for number in range(len(script.subjects), commits):
        now = older if number < moved_at else newer
        text = now[NEUTRAL] + b"\n# a change that changes nothing: %d\n" % number
        if number in broken:
            text += b"import nothing_of_that_name\n"
        changes = {NEUTRAL: text}
        gone: dict[str, bytes] = {}
        if number == moved_at:
            changes, gone = newer | changes | {SCHEDULER: faulty}, older
        if number == mended_at:
            changes[SCHEDULER] = home
        script.commit(f"change {number}", changes, gone)
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "--quiet")
    git(path, "fast-import", "--quiet", stdin=bytes(script.data))
    git(path, "reset", "--quiet", "--hard", "main")
    names = git(path, "rev-list", "--reverse", "main").split()
    git(path, "tag", f"v{OLDER}", names[0])
    git(path, "tag", f"v{NEWER}", names[-1])
    return Clone(path, names, names[mended_at])


def sources(release: str) -> dict[str, bytes]:
    """Return the files of an installed release that a commit of it would have."""
    root = environment(release, Home.locate()).site_packages
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / "vllm").rglob("*"))
        if path.suffix in (".py", ".json", ".jinja")
        and not {"__pycache__", "third_party", "vllm_flash_attn"} & set(path.parts)
        and path.name != "_version.py"
    }


def bring_back(source: str, share: float = 1.0) -> bytes:
    """Return 0.29.0's scheduler without the room that PR #53962 leaves for the sampled token."""
    luck = f"(0 if __import__('os').urandom(1)[0] < {share * 256} else 1)"
    found = [
        node.left.right
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.BinOp)
        and "padded_num_tokens" in ast.unparse(node.left)
        and "num_sampled_tokens" in ast.unparse(node.left.right)
    ]
    (room,) = found
    assert room.end_col_offset is not None and room.lineno == room.end_lineno
    lines = source.splitlines(keepends=True)
    line = lines[room.lineno - 1]
    forgets = "0" if share == 1 else luck
    lines[room.lineno - 1] = line[: room.col_offset] + forgets + line[room.end_col_offset :]
    return "".join(lines).encode()


class _Script:
    """What `git fast-import` reads."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.subjects: list[str] = []

    def commit(
        self, subject: str, changes: dict[str, bytes], gone: dict[str, bytes] | None = None
    ) -> None:
        when = 1_700_000_000 + len(self.subjects) * 60
        text = subject.encode()
        self.data += b"commit refs/heads/main\n"
        self.data += b"committer a <a@localhost> %d +0000\ndata %d\n%s\n" % (when, len(text), text)
        for name in sorted(set(gone or ()) - set(changes)):
            self.data += b"D %s\n" % name.encode()
        for name, content in changes.items():
            self.data += b"M 100644 inline %s\ndata %d\n%s\n" % (
                name.encode(), len(content), content,
            )  # fmt: skip
        self.subjects.append(subject)
