"""Nouns: the `serve` verb.

The dashboard, by a server that many may ask at once. It listens on loopback unless told otherwise,
and writes nothing without a token.
"""

from pathlib import Path

import click

from schedfuzz.cli.options import db_option, open_db
from schedfuzz.corpus.errors import InputError
from schedfuzz.service.ray_node import split_address

THREADS = 8
LEAST_TOKEN = 16


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:8480", show_default=True,
    help="Where it listens; reading asks for no password.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE",
    envvar="SCHEDFUZZ_DASHBOARD_TOKEN_FILE",
    help="Holds the token that who decides about findings must know; without it, none can.",
)  # fmt: skip
@db_option
def serve(listen: str, token_file: Path | None, db_url: str | None) -> None:
    """Show campaigns and findings in a browser, until Ctrl-C; `?format=json` for programs."""
    # Here, for no other verb should wait for a web server's imports.
    import waitress

    from schedfuzz.web.app import create

    host, port = split_address(listen)
    app = create(open_db(db_url), _token(token_file) if token_file else "")
    try:
        server = waitress.create_server(app, host=host, port=port, threads=THREADS, ident=None)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--listen {listen}: {error}; give an address of this machine and a free port"
        ) from None
    click.echo(f"http://{listen}/", err=True)
    server.run()


def _token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {file}: cannot read it ({error}); name another") from None
    if len(token) < LEAST_TOKEN:
        raise InputError(
            f"--token-file {file}: holds {len(token)} characters, and a token has at least "
            f"{LEAST_TOKEN}; `openssl rand -hex 16` makes one"
        )
    return token
