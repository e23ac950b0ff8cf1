"""Nouns: page, view.

The dashboard's pages, each of which is JSON too under the same URL with `?format=json` or an Accept
header. It only reads. Everything it shows came from targets, so nothing of it is ever markup.
"""

from typing import Any

from flask import Flask, Response, jsonify, render_template, request
from werkzeug.exceptions import HTTPException

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.trace import KINDS, ORDER
from schedfuzz.db import finding_lists, queries, service_summary
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.db.rows import clean

PAGE = 100
FILTERS = ("before", "after", "verdict", "kind", "status")
LISTED = (
    "id", "before", "after", "verdict", "kind", "rule", "component", "title", "status",
    "first_seen_at", "last_seen_at",
)  # fmt: skip
# No script at all, and nothing from elsewhere: what came from a target cannot become any.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create(store: Store) -> Flask:
    """Return the application over a store."""
    app = Flask(__name__)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True

    @app.get("/")
    def overview() -> Any:
        return _answer("overview.html", service_summary.gather(store))

    @app.get("/findings")
    def findings() -> Any:
        return _answer("findings.html", _findings(store))

    @app.get("/findings/<int:number>")
    def finding(number: int) -> Any:
        row = queries.get_finding(store, number)
        scenario = codec.pretty(codec.decode(row.reproducer.data, f"finding {row.id}"))
        return _answer(
            "finding.html",
            queries.finding_in_full(row, queries.sightings(store, row)),
            text=scenario,
        )

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    app.register_error_handler(InputError, lambda error: _failed(str(error), 404))
    app.register_error_handler(InfraError, lambda error: _failed(str(error), 503))
    app.register_error_handler(
        HTTPException, lambda error: _failed(error.description or error.name, error.code or 500)
    )

    @app.after_request
    def guard(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    return app


def _findings(store: Store) -> dict[str, Any]:
    given = {name: clean(request.args.get(name, "")) for name in FILTERS}
    page = max(request.args.get("page", 1, type=int), 1)
    exact: dict[str, Any] = {name: given[name] for name in FILTERS if name != "status"}
    wanted = finding_lists.Wanted(status=(given["status"],) if given["status"] else (), **exact)
    found = finding_lists.find(store, wanted, size=PAGE, page=page)
    return {
        "filters": given, "page": page, "pages": -(-found.total // PAGE), "total": found.total,
        "findings": [_row(*entry) for entry in found.page],
    }  # fmt: skip


def _row(row: Finding, sightings: int) -> dict[str, Any]:
    return {name: getattr(row, name) for name in LISTED} | {"count": sightings}


def _answer(template: str, facts: dict[str, Any], **more: Any) -> Any:
    if _wants_json():
        return jsonify(facts)
    return render_template(template, verdicts=ORDER, kinds=KINDS, **facts, **more)


def _wants_json() -> bool:
    named = request.args.get("format")
    best = request.accept_mimetypes.best_match(["text/html", "application/json"])
    return named == "json" or (named is None and best == "application/json")


def _failed(why: str, code: int) -> tuple[Any, int]:
    if _wants_json():
        return jsonify({"error": why}), code
    return render_template("failed.html", why=why, code=code), code
