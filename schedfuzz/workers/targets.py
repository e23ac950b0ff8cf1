"""Nouns: Target, release, transform.

A target is a release, or a release with a transform: a function that rewrites each module's
syntax tree while it is imported. A transform's name carries a digest of its file, so an edited
transform is another target and never shares findings with the old one.
"""

import ast
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from schedfuzz.corpus.errors import InputError

RELEASE = re.compile(r"\d+\.\d+\.\d+(rc\d+)?(\.post\d+)?")
SPELLING = "write a release like 0.28.0, or 0.28.0+PATH/TO/file.py:function"
DIGEST_CHARS = 8


@dataclass(frozen=True)
class Target:
    """A vLLM to run on.

    `transform` is (absolute file, function), where the function has the signature
    `(module_name: str, tree: ast.Module) -> ast.Module`; `name` is the stable identity that the
    database stores.
    """

    release: str
    transform: tuple[Path, str] | None = None
    digest: str = ""

    @property
    def name(self) -> str:
        """Return the release, followed for a transform by its file name, function and digest."""
        if self.transform is None:
            return self.release
        path, function = self.transform
        return f"{self.release}+{path.name}:{function}@{self.digest}"

    @property
    def spelling(self) -> str:
        """Return what `parse_target` reads back on this machine."""
        if self.transform is None:
            return self.release
        path, function = self.transform
        return f"{self.release}+{path}:{function}"


def parse_release(text: str) -> str:
    """Return `text` if it is spelled like a release. Raises InputError."""
    if not RELEASE.fullmatch(text):
        raise InputError(f"target {text!r} is not a release; write it like 0.28.0 or 0.32.0rc1")
    return text


def parse_target(text: str) -> Target:
    """Return the target that `text` spells.

    Raises InputError for a misspelled release, and for a transform whose file is missing, is not
    Python, or does not define the function.
    """
    release, plus, rest = text.partition("+")
    if not RELEASE.fullmatch(release):
        raise InputError(f"target {text!r}: {release!r} is not a release; {SPELLING}")
    if not plus:
        return Target(release)
    name, colon, function = rest.rpartition(":")
    if not colon or not name or not function.isidentifier():
        raise InputError(f"target {text!r}: {rest!r} is not FILE.py:FUNCTION; {SPELLING}")
    path = Path(name).expanduser().resolve()
    source = _read(text, path)
    _require_function(text, path, source, function)
    return Target(release, (path, function), hashlib.sha256(source).hexdigest()[:DIGEST_CHARS])


def _read(text: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"target {text!r}: no file {path}; check the path") from None
    except OSError as error:
        raise InputError(f"target {text!r}: cannot read {path} ({error.strerror})") from None


def _require_function(text: str, path: Path, source: bytes, function: str) -> None:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise InputError(f"target {text!r}: {path} is not Python ({error}); mend it") from None
    known = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    if function not in known:
        has = ", ".join(known) or "none"
        raise InputError(f"target {text!r}: {path} defines no function {function!r}; it has: {has}")
