"""Nouns: page, view.

The dashboard's pages, each of which is JSON too under the same URL with `?format=json` or an Accept
header. Everything they show came from targets, so nothing of it is ever markup.
"""

from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import muting
from schedfuzz.db.connect import Store
from schedfuzz.report.facts import gather
from schedfuzz.report.pages import STYLE
from schedfuzz.web import overview, writing
from schedfuzz.web.answer import answer, code_of, failed
from schedfuzz.web.finding import shown
from schedfuzz.web.listing import listed

# No script at all, and nothing from elsewhere: what came from a target cannot become any.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create(store: Store, token: str = "") -> Flask:
    """Return the application over a store; without a token nothing can be written."""
    app = Flask(__name__)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True

    @app.get("/")
    def overview_page() -> Any:
        hours = min(max(request.args.get("hours", 24, type=int), 1), 24 * 365)
        return answer("overview.html", *overview.gathered(store, hours))

    @app.get("/findings")
    def findings() -> Any:
        muting.wake(store)
        facts, more = listed(store, request.args)
        return answer("findings.html", facts, more)

    @app.get("/findings/<int:number>")
    def finding(number: int) -> Any:
        return answer("finding.html", *shown(gather(store, number)))

    @app.get("/report.css")
    def report_style() -> Response:
        return Response(STYLE.read_text(), mimetype="text/css")

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    writing.register(app, store, token)
    app.register_error_handler(InputError, lambda error: failed(str(error), code_of(error)))
    app.register_error_handler(InfraError, lambda error: failed(str(error), 503))
    app.register_error_handler(
        HTTPException, lambda error: failed(error.description or error.name, error.code or 500)
    )

    @app.after_request
    def guard(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    return app
