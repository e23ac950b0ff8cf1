"""Nouns: the `serve` verb.

The dashboard, by a server that many may ask at once. It reads only, and listens on loopback unless
told otherwise.
"""

import click

from schedfuzz.cli.options import db_option, open_db
from schedfuzz.corpus.errors import InputError
from schedfuzz.service.ray_node import split_address

THREADS = 8


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", default="127.0.0.1:8480", show_default=True,
    help="Where it listens; it asks for no password.",
)  # fmt: skip
@db_option
def serve(listen: str, db_url: str | None) -> None:
    """Show campaigns and findings in a browser, until Ctrl-C; `?format=json` for programs."""
    # Here, for no other verb should wait for a web server's imports.
    import waitress

    from schedfuzz.web.app import create

    host, port = split_address(listen)
    app = create(open_db(db_url))
    try:
        server = waitress.create_server(app, host=host, port=port, threads=THREADS, ident=None)
    except (OSError, ValueError) as error:
        raise InputError(
            f"--listen {listen}: {error}; give an address of this machine and a free port"
        ) from None
    click.echo(f"http://{listen}/", err=True)
    server.run()
