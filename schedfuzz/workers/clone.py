"""Nouns: clone, ref, commit, tree of files.

What git knows of a local clone of vLLM. Nothing here changes the clone: its branch, index and
working files are the user's. `.` in the place of a ref means the working files as they are.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from schedfuzz.corpus.errors import InfraError, InputError

WORKING_FILES = "."
PACKAGE = "vllm"
GIT_SECONDS = 120


def resolve(clone: Path, ref: str) -> str:
    """Return the commit that `ref` names, for `.` a tree of the working files (40 hex digits each).

    Raises InputError for what is no clone of vLLM and for a ref that it does not have.
    """
    if not clone.is_dir():
        raise InputError(f"{clone}: no such directory; name a local clone of vLLM")
    if ref == WORKING_FILES:
        return _working_files(clone)
    if not ref or ref.startswith("-"):
        raise InputError(f"ref {ref!r}: write a branch, tag or commit of {clone}")
    said = _run(clone, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if said.returncode == 128 or not (clone / ".git").exists():
        raise InputError(f"{clone}: git does not read it as a clone ({_last(said)})")
    if said.returncode != 0:
        raise InputError(f"ref {ref!r}: {clone} has none of that name; `git fetch` may bring it")
    return said.stdout.strip()


def files(clone: Path, tree: str, below: str = PACKAGE) -> dict[str, str]:
    """Return the blob of each file of a commit or tree, by path. Raises InputError for none."""
    found: dict[str, str] = {}
    said = _checked(clone, "ls-tree", "-r", "-z", "--full-tree", tree, "--", below)
    for entry in filter(None, said.split("\0")):
        facts, _, path = entry.partition("\t")
        mode, kind, blob = facts.split()
        if kind == "blob" and mode != "120000":
            found[path] = blob
    if not found and below == PACKAGE:
        raise InputError(f"{clone}: {tree[:12]} has no directory vllm; name a clone of vLLM")
    return found


def contents(clone: Path, blobs: Sequence[str]) -> Iterator[bytes]:
    """Yield the content of each blob. Raises InfraError."""
    wanted = "".join(f"{blob}\n" for blob in blobs)
    said = subprocess.run(
        _command(clone, "cat-file", "--batch"), input=wanted.encode(), capture_output=True,
        timeout=GIT_SECONDS,
    )  # fmt: skip
    at = 0
    for blob in blobs:
        end = said.stdout.find(b"\n", at)
        header = said.stdout[at:end].split()
        if end < 0 or len(header) != 3:
            raise InfraError(f"{clone}: git does not give blob {blob[:12]}")
        size = int(header[2])
        yield said.stdout[end + 1 : end + 1 + size]
        at = end + 1 + size + 1


def ignored(clone: Path, folder: Path, paths: Sequence[str]) -> set[str]:
    """Return which paths the `.gitignore` in `folder` ignores: a build makes them, no commit."""
    git_dir = _checked(clone, "rev-parse", "--absolute-git-dir").strip()
    said = subprocess.run(
        [
            "git", f"--git-dir={git_dir}", f"--work-tree={folder}", "-c",
            f"core.excludesFile={os.devnull}", "check-ignore", "--no-index", "--stdin", "-z",
        ],
        cwd=folder, input="\0".join(paths), capture_output=True, text=True, timeout=GIT_SECONDS,
    )  # fmt: skip
    if said.returncode not in (0, 1):
        raise InfraError(f"{clone}: git does not tell what is ignored ({_last(said)})")
    return set(filter(None, said.stdout.split("\0")))


def line_of_commits(clone: Path, older: str, newer: str) -> list[str]:
    """Return the commits after `older` up to `newer` (both hex), oldest first, merges as one.

    Where `older` is on a branch of its own, those after the point where that left. Raises
    InputError when there is none.
    """
    base = merge_base(clone, older, newer)
    said = _checked(clone, "rev-list", "--first-parent", "--reverse", f"{base}..{newer}")
    if not said.split():
        raise InputError(f"{clone}: no commit lies between {older[:12]} and {newer[:12]}")
    return said.split()


def merge_base(clone: Path, one: str, two: str) -> str:
    """Return the newest commit that both have. Raises InputError for none."""
    said = _run(clone, "merge-base", one, two)
    if said.returncode != 0:
        raise InputError(f"{clone}: {one[:12]} and {two[:12]} have no commit in common")
    return said.stdout.strip()


def by_age(clone: Path, one: str, two: str) -> tuple[str, str]:
    """Return two commits, the older first: the other's ancestor, else the one committed first.

    Raises InputError when they are the same.
    """
    if one == two:
        raise InputError(f"{clone}: {one[:12]} is both ends; name two commits")
    base = merge_base(clone, one, two)
    if base in (one, two):
        return (one, two) if base == one else (two, one)
    times = [int(_checked(clone, "log", "-1", "--format=%ct", commit)) for commit in (one, two)]
    return (one, two) if times[0] <= times[1] else (two, one)


def changed_lines(clone: Path, older: str, newer: str) -> dict[str, list[range]]:
    """Return, per file of the package, which lines of `newer` differ from `older`.

    Where lines are only taken away, the two around the place.
    """
    said = _checked(
        clone, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", older, newer,
        "--", PACKAGE,
    )  # fmt: skip
    found: dict[str, list[range]] = {}
    path = ""
    for line in said.splitlines():
        if line.startswith("diff --git "):
            path = line.rpartition(" b/")[2]
            found.setdefault(path, [])
        elif line.startswith("@@ "):
            start, _, count = line.split(" ")[2].removeprefix("+").partition(",")
            length = int(count or 1)
            first = int(start)
            found[path].append(range(first, first + length) if length else range(first, first + 2))
    return found


def subject(clone: Path, commit: str) -> str:
    """Return the commit's first line."""
    return _checked(clone, "log", "-1", "--format=%s", commit).strip()


def _working_files(clone: Path) -> str:
    """Return a tree of the working files, made with an index of its own."""
    with tempfile.TemporaryDirectory(prefix="schedfuzz-index-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        _checked(clone, "read-tree", "HEAD", **index)
        _checked(clone, "add", "--all", "--", PACKAGE, **index)
        return _checked(clone, "write-tree", **index).strip()


def _command(clone: Path, *arguments: str) -> list[str]:
    return ["git", "-C", str(clone), *arguments]


def _run(
    clone: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    try:
        return subprocess.run(
            _command(clone, *arguments), capture_output=True, text=True, errors="replace",
            timeout=GIT_SECONDS, env={**os.environ, "LC_ALL": "C", **variables},
        )  # fmt: skip
    except FileNotFoundError:
        raise InputError("git: not installed; `apt-get install git` brings it") from None
    except subprocess.TimeoutExpired:
        raise InfraError(f"{clone}: git took over {GIT_SECONDS} s") from None


def _checked(clone: Path, *arguments: str, **variables: str) -> str:
    said = _run(clone, *arguments, **variables)
    if said.returncode != 0:
        raise InputError(f"{clone}: `git {arguments[0]}` fails: {_last(said)}")
    return said.stdout


def _last(said: subprocess.CompletedProcess[str]) -> str:
    return (said.stderr.strip().splitlines() or ["no reason given"])[-1]
