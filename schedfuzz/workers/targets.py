"""Nouns: Target, release, runner, transform, scheduler class.

A target is a release, on the simulated runner or (`0.28.0:real`) on the real one: two runners on
one release are two targets, and to compare them is to hunt that pair. It may also be a release with
a transform: a function that rewrites each module's syntax tree while it is imported. A transform's
name carries a digest of its file, so an edited transform is another target and never shares
findings with the old one. The same holds for a scheduler class of the user's own, which takes the
place of vLLM's. A commit of a local clone is a target too, laid over a release's compiled parts.
"""

import ast
import hashlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.names import CLONE_MARK
from schedfuzz.workers import clone as git
from schedfuzz.workers.home import Home
from schedfuzz.workers.overlay import nearest_release

RELEASE = re.compile(r"\d+\.\d+\.\d+(rc\d+)?(\.post\d+)?")
SPELLING = (
    "write a release like 0.28.0, or 0.28.0:real for the real runner, or "
    "0.28.0+PATH/TO/file.py:function, or 0.28.0@module:Class, or PATH/TO/CLONE#REF"
)
Runner = Literal["simulated", "real"]
REAL_SUFFIX = ":real"
DIGEST_CHARS = 8
COMMIT_CHARS = 12


@dataclass(frozen=True)
class Target:
    """A vLLM to run on.

    `transform` is (absolute file, function), where the function has the signature
    `(module_name: str, tree: ast.Module) -> ast.Module`; `scheduler` is (absolute directory,
    "module:Class"), found in that directory; `clone` is (absolute directory, commit or tree of
    files, in hex), laid over `release`. `name` is the stable identity that the database stores.
    `runner` plays the model for it.
    """

    release: str
    transform: tuple[Path, str] | None = None
    digest: str = ""
    scheduler: tuple[Path, str] | None = None
    runner: Runner = "simulated"
    clone: tuple[Path, str] | None = None

    @property
    def name(self) -> str:
        """Return release and runner, then a transform or class and the digest of its file."""
        if self.clone is not None:
            return f"{self.release}{CLONE_MARK}{self.clone[1][:COMMIT_CHARS]}{self._suffix}"
        if self.scheduler is not None:
            return f"{self._played}@{self.scheduler[1]}@{self.digest}"
        if self.transform is None:
            return self._played
        path, function = self.transform
        return f"{self._played}+{path.name}:{function}@{self.digest}"

    @property
    def spelling(self) -> str:
        """Return what `parse_target` reads back on this machine."""
        if self.clone is not None:
            path, commit = self.clone
            return f"{self.release}:{path}{CLONE_MARK}{commit}{self._suffix}"
        if self.scheduler is not None:
            return f"{self._played}@{self.scheduler[1]}"
        if self.transform is None:
            return self._played
        path, function = self.transform
        return f"{self._played}+{path}:{function}"

    @property
    def _played(self) -> str:
        return self.release + self._suffix

    @property
    def _suffix(self) -> str:
        return REAL_SUFFIX if self.runner == "real" else ""

    def on(self, runner: Runner) -> "Target":
        """Return the same vLLM on a runner."""
        return replace(self, runner=runner)


def parse_release(text: str) -> str:
    """Return `text` if it is spelled like a release. Raises InputError."""
    if not RELEASE.fullmatch(text):
        raise InputError(f"target {text!r} is not a release; write it like 0.28.0 or 0.32.0rc1")
    return text


def parse_target(text: str) -> Target:
    """Return the target that `text` spells.

    A clone without a release lies over the one that has most files in common with it. Raises
    InputError for a misspelled release, for a clone or ref that is not there, and for a transform
    whose file is missing, is not Python, or does not define the function or class.
    """
    if CLONE_MARK in text:
        return _of_clone(text)
    release, at, rest = text.partition("@")
    release, runner = _runner(release)
    if at and RELEASE.fullmatch(release):
        return _with_scheduler(text, release, rest).on(runner)
    release, plus, rest = text.partition("+")
    release, runner = _runner(release)
    if not RELEASE.fullmatch(release):
        raise InputError(f"target {text!r}: {release!r} is not a release; {SPELLING}")
    if not plus:
        return Target(release, runner=runner)
    name, colon, function = rest.rpartition(":")
    if not colon or not name or not function.isidentifier():
        raise InputError(f"target {text!r}: {rest!r} is not FILE.py:FUNCTION; {SPELLING}")
    path = Path(name).expanduser().resolve()
    source = _read(text, path)
    _require(text, path, source, ast.FunctionDef, function)
    return Target(release, (path, function), _digest(source), runner=runner)


def _runner(release: str) -> tuple[str, Runner]:
    """Return a release without its suffix, and the runner that the suffix asks for."""
    plain = release.removesuffix(REAL_SUFFIX)
    return plain, "simulated" if plain == release else "real"


def _of_clone(text: str) -> Target:
    """Return the target that a commit of a clone is, laid over the release named or the nearest."""
    text, runner = _runner(text)
    place, _, ref = text.rpartition(CLONE_MARK)
    release, colon, path = place.partition(":")
    if not (colon and RELEASE.fullmatch(release)):
        release, path = "", place
    clone = Path(path).expanduser().resolve()
    commit = git.resolve(clone, ref)
    release = release or nearest_release(clone, commit, Home.locate())
    return Target(release, runner=runner, clone=(clone, commit))


def _with_scheduler(text: str, release: str, rest: str) -> Target:
    """Return the target with a scheduler class, looked for from the current directory on."""
    module, colon, name = rest.partition(":")
    if not colon or not name.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        package, dot, last = rest.rpartition(".")
        cure = SPELLING
        if dot and all(map(str.isidentifier, rest.split("."))):
            cure = f"write {package}:{last}"
        raise InputError(f"target {text!r}: {rest!r} is not module:Class; {cure}")
    stem = Path(*module.split("."))
    for root in (Path.cwd(), *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(":")))):
        for path in (root / stem.with_suffix(".py"), root / stem / "__init__.py"):
            if path.is_file():
                source = _read(text, path)
                _require(text, path, source, ast.ClassDef, name)
                return Target(release, None, _digest(source), (root.absolute(), rest))
    raise InputError(
        f"target {text!r}: no module {module!r} in the current directory or on PYTHONPATH; go to "
        "the directory that holds it"
    )


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:DIGEST_CHARS]


def _read(text: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"target {text!r}: no file {path}; check the path") from None
    except OSError as error:
        raise InputError(f"target {text!r}: cannot read {path} ({error.strerror})") from None


def _require(
    text: str, path: Path, source: bytes, kind: type[ast.FunctionDef | ast.ClassDef], name: str
) -> None:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"target {text!r}: {path} is not Python ({error}); mend it") from None
    known = [node.name for node in body if isinstance(node, kind)]
    if name not in known:
        has, what = ", ".join(known) or "none", "class" if kind is ast.ClassDef else "function"
        raise InputError(f"target {text!r}: {path} defines no {what} {name!r}; it has: {has}")
