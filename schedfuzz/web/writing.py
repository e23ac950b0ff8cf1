"""Nouns: token, signed-in session, decision by form or JSON.

Whoever knows the token may decide about findings, and nobody without one. A browser trades it once
for a session cookie that scripts cannot read and other sites cannot send; each form carries the
session's own secret besides. A program sends the token itself with each request, and no cookie.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from flask import Flask, redirect, render_template, request, session, url_for
from werkzeug.exceptions import Forbidden, Unauthorized

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import decisions, queries
from schedfuzz.db.connect import Store
from schedfuzz.db.rows import now
from schedfuzz.web.answer import BadInput, answer

MOST_DAYS = 3650
Act = Callable[[Store, int, Mapping[str, str], str], None]


def _days(fields: Mapping[str, str]) -> timedelta:
    text = fields.get("days", "")
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MOST_DAYS):
        raise InputError(f"days {text!r}: write a number from 1 to {MOST_DAYS}")
    return timedelta(days=int(text))


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InputError(f"{name} {text!r}: write the number of a finding")
    return int(text)


def _target(fields: Mapping[str, str]) -> str:
    text = fields.get("target", "").strip()
    if not text:
        raise InputError("target: is empty; write where it is fixed, like 0.29.0")
    return text


def _note(fields: Mapping[str, str]) -> str:
    return fields.get("note", "")


VERBS: dict[str, Act] = {
    "report": lambda store, n, f, by: decisions.report(store, n, by, _note(f)),
    "resolve": lambda store, n, f, by: decisions.resolve(store, n, _target(f), by, _note(f)),
    "reopen": lambda store, n, f, by: decisions.reopen(store, n, by, _note(f)),
    "dup": lambda store, n, f, by: decisions.duplicate(store, n, _number(f, "of"), by, _note(f)),
    "mute": lambda store, n, f, by: decisions.mute(store, n, now() + _days(f), by, _note(f)),
    "invalid": lambda store, n, f, by: decisions.invalidate(store, n, by, _note(f)),
    "note": lambda store, n, f, by: decisions.remark(store, n, _note(f), by),
}


def register(app: Flask, store: Store, token: str) -> None:
    """Add what writes to the application."""
    app.secret_key = secrets.token_bytes(32)
    app.config.update(
        SESSION_COOKIE_SAMESITE="Strict", SESSION_COOKIE_HTTPONLY=True, MAX_CONTENT_LENGTH=64 << 10
    )

    @app.context_processor
    def signed_in() -> dict[str, Any]:
        return {"writable": bool(token), "who": session.get("who"), "csrf": session.get("csrf")}

    @app.route("/sign-in", methods=["GET", "POST"])
    def sign_in() -> Any:
        if request.method == "GET":
            return render_template("sign_in.html")
        _check_token(token, request.form.get("token", ""))
        session["who"] = request.form.get("name", "").strip()[:80] or "dashboard"
        session["csrf"] = secrets.token_urlsafe(24)
        return redirect(url_for("findings"), 303)

    @app.post("/sign-out")
    def sign_out() -> Any:
        _check_form()
        session.clear()
        return redirect(url_for("findings"), 303)

    @app.post("/findings/<int:number>")
    def decide(number: int) -> Any:
        fields, by = _writer(token)
        verb = fields.get("verb", "")
        if verb not in VERBS:
            raise BadInput(f"verb {verb!r}: there are {', '.join(VERBS)}")
        queries.get_finding(store, number)
        try:
            VERBS[verb](store, number, fields, by)
        except InputError as error:
            raise BadInput(str(error)) from None
        if request.is_json:
            return answer("", {"id": number, "status": queries.get_finding(store, number).status})
        return redirect(url_for("finding", number=number), 303)


def _writer(token: str) -> tuple[Mapping[str, str], str]:
    """Return the fields of a request that may write, and who sent it."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme == "Bearer":
        _check_token(token, given.strip())
        if not request.is_json or not isinstance(request.json, dict):
            raise BadInput("the body: is no JSON object; send one with a verb")
        fields = {str(name): str(value) for name, value in request.json.items()}
        return fields, fields.get("by", "api")
    _check_form()
    return request.form, session["who"]


def _check_token(token: str, given: str) -> None:
    if not token:
        raise Forbidden("nothing can be written here: serve was started without a token")
    if not hmac.compare_digest(token.encode(), given.encode("utf-8", "replace")):
        raise Unauthorized("this is not the token that serve was started with")


def _check_form() -> None:
    """Refuse a form that this session was not given. Raises Unauthorized and Forbidden."""
    if "csrf" not in session:
        raise Unauthorized("sign in with the token first")
    if not hmac.compare_digest(session["csrf"].encode(), request.form.get("csrf", "").encode()):
        raise Forbidden("this form is not of this session; load the page again")
