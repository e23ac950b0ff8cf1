"""Nouns: overlay, nearest release.

A clone's Python files laid over a release's compiled parts. What a commit shares with the release
is linked, its bytecode too, so that an overlay costs the files in which they differ. Of the
release's other files those come along that no commit has: what the clone's `.gitignore` names, and
compiled parts.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from schedfuzz.corpus.errors import InputError
from schedfuzz.workers import clone as git
from schedfuzz.workers.environment import Environment, list_environments
from schedfuzz.workers.home import Home, make_directory

UNUSED_SECONDS = 7 * 86400
COMPILED = (".so",)
_MARKER = "complete"


def overlay(repository: Path, tree: str, env: Environment, home: Home) -> Environment:
    """Return `env` with a commit's or tree's files laid over it, made unless it is there.

    Raises InputError for what is no tree of vLLM.
    """
    folder = make_directory(home.root / "overlays") / f"{tree[:12]}-{env.dir.name}"
    marker = folder / _MARKER
    stamp = hashlib.sha256(env.marker.read_bytes()).hexdigest()
    with contextlib.suppress(OSError):
        if marker.read_text() == stamp:
            os.utime(marker)
            return replace(env, overlay=folder)
    _remove_unused(folder.parent)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    try:
        _fill(draft, repository, tree, env, home)
        (draft / _MARKER).write_text(stamp)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else was faster, with the same content
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return replace(env, overlay=folder)


def nearest_release(repository: Path, tree: str, home: Home) -> str:
    """Return the ready release that has the most files in common with a commit or tree.

    Raises InputError when no release is ready.
    """
    ready = [env for env in list_environments(home) if not env.problem()]
    if not ready:
        raise InputError(
            "no release is built that a clone could lie over; `schedfuzz targets add RELEASE` "
            "builds one"
        )
    wanted = git.files(repository, tree).items()
    return max(ready, key=lambda env: len(wanted & _blobs(env, home).items())).release


def _fill(draft: Path, repository: Path, tree: str, env: Environment, home: Home) -> None:
    committed = git.files(repository, tree)
    released = _blobs(env, home)
    same = {path for path, blob in committed.items() if released.get(path) == blob}
    own = sorted(committed.keys() - same)
    contents = git.contents(repository, [committed[path] for path in own])
    for path, content in zip(own, contents, strict=True):
        _place(draft / path).write_bytes(content)
    made = _made_by_a_build(draft, repository, tree, sorted(released.keys() - committed.keys()))
    for path in (*same, *made):
        _link(env.site_packages / path, _place(draft / path))


def _made_by_a_build(
    draft: Path, repository: Path, tree: str, paths: Iterable[str]
) -> set[str]:  # fmt: skip
    """Return which of the release's other files a build of the clone would make."""
    others = list(paths)
    compiled = {path for path in others if path.endswith(COMPILED)}
    rules = git.files(repository, tree, ".gitignore")
    if not rules:
        return compiled
    (text,) = git.contents(repository, list(rules.values()))
    (draft / ".gitignore").write_bytes(text)
    return compiled | git.ignored(repository, draft, others)


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _link(source: Path, at: Path) -> None:
    at.symlink_to(source)
    bytecode = Path("__pycache__", f"{source.stem}.{sys.implementation.cache_tag}.pyc")
    # Bytecode tells its source by time and size, which a link has of the file that it leads to.
    if source.suffix == ".py" and (source.parent / bytecode).exists():
        _place(at.parent / bytecode).symlink_to(source.parent / bytecode)


def _blobs(env: Environment, home: Home) -> dict[str, str]:
    """Return git's blob of each file of the release, by path; kept, for they never change."""
    stamp = hashlib.sha256(env.marker.read_bytes()).hexdigest()[:12]
    kept = make_directory(home.root / "overlays") / f".blobs-{env.dir.name}-{stamp}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(kept.read_bytes(), type=dict[str, str])
    found = {}
    for path in (env.site_packages / git.PACKAGE).rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            name = path.relative_to(env.site_packages).as_posix()
            found[name] = "compiled" if path.suffix in COMPILED else _blob(path)
    draft = kept.with_suffix(f".{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(found))
    draft.replace(kept)
    return found


def _blob(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _remove_unused(folder: Path) -> None:
    """Remove overlays that nothing has used for long, and drafts that were never finished."""
    for old in folder.iterdir():
        with contextlib.suppress(OSError):
            marker = old / _MARKER
            seen = (marker if marker.exists() else old).stat().st_mtime
            if old.is_dir() and time.time() - seen > UNUSED_SECONDS:
                shutil.rmtree(old)
