"""Nouns: answer: a page for people, JSON for programs."""

from typing import Any

import msgspec
from flask import Response, render_template, request

from schedfuzz.corpus.errors import InputError


class BadInput(InputError):
    """A request that makes no sense, of something that is there."""


def code_of(error: InputError) -> int:
    """Return the status code for bad input: it makes no sense, or what it names is not there."""
    return 400 if isinstance(error, BadInput) else 404


def answer(template: str, facts: Any, more: dict[str, Any] | None = None) -> Any:
    """Return the facts as JSON, or as a page, which may need `more`."""
    if wants_json():
        return Response(msgspec.json.encode(facts) + b"\n", mimetype="application/json")
    return render_template(template, **facts, **(more or {}))


def failed(why: str, code: int) -> tuple[Any, int]:
    """Return why a request was refused, and the status code."""
    if wants_json():
        return Response(msgspec.json.encode({"error": why}), mimetype="application/json"), code
    return render_template("failed.html", why=why, code=code), code


def wants_json() -> bool:
    """Return whether the request asks for JSON."""
    named = request.args.get("format")
    best = request.accept_mimetypes.best_match(["text/html", "application/json"])
    return named == "json" or (named is None and best == "application/json")
