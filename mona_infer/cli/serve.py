"""`mona serve`: a page and an API on this machine, to segment, look, correct and train."""

from __future__ import annotations

import secrets
from pathlib import Path

import typer

from mona_infer.engines.base import AUTO, engines
from mona_infer.errors import InputError


def serve(
    dataset: Path | None = typer.Argument(
        None, metavar="[DATASET]", help="A folder as `mona train --dataset` takes it, or any folder of scans."
    ),
    model: Path | None = typer.Option(
        None, help="A file, a run's folder, or a name of `mona models`. Default: as `mona segment`."
    ),
    port: int = typer.Option(8000, min=0, max=65535, help="0 takes a free one."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on. Any but 127.0.0.1 needs a token."),
    token: str | None = typer.Option(
        None, help="Require this token. Where one is needed and none is given, one is made and printed."
    ),
    state: Path | None = typer.Option(
        None, metavar="FOLDER", help="Where uploads, jobs and predictions are kept. Default: in runs/.serve."
    ),
    upload: str = typer.Option("2GB", metavar="SIZE", help="The largest file that can be sent."),
    storage: str = typer.Option(
        "20GB", metavar="SIZE", help="Room for all uploaded scans; the oldest are deleted when new ones need it."
    ),
    keep_names: bool = typer.Option(
        False, "--keep-names", help="Show names of files and DICOM folders, which may be patients' names."
    ),
    allow_origin: list[str] = typer.Option(
        [], metavar="URL", help="Another page that may use the API, such as OHIF's: http://localhost:3000."
    ),
    allow_host: list[str] = typer.Option([], metavar="NAME", help="Another name by which this machine is reached."),
    engine: str = typer.Option(AUTO, help=f"{', '.join([AUTO, *engines()])}."),
    threads: int = typer.Option(0, min=0, metavar="N", help="Threads for the network. Default: all cores."),
) -> None:
    """Serve a page and an API: segment scans, correct masks, train on the corrections.

    3D Slicer and OHIF connect with their MONAI Label plugins. Nothing leaves this machine.
    """
    from mona_infer.serving.app import create_app
    from mona_infer.serving.run import listen, run
    from mona_infer.serving.safety import Rules, loopback, names_of
    from mona_infer.serving.site import Options, Site
    from mona_infer.serving.state import State, default_state
    from mona_infer.system.memory_budget import parse_size

    if dataset is not None and not dataset.is_dir():
        raise InputError(f"{dataset} is not a folder; give the folder of a data set")
    if token is not None and len(token) < 8:
        raise InputError(f"a token must have at least 8 characters, found {len(token)}")
    largest, room = parse_size(upload), parse_size(storage)
    if room < largest:
        raise InputError(
            f"--storage {storage} is smaller than one upload may be (--upload {upload}); allow more storage"
        )
    token = token or (None if loopback(host) else secrets.token_urlsafe(24))
    origins = frozenset(origin.rstrip("/") for origin in allow_origin)
    bound = listen(host, port)
    place = State(state or default_state(dataset))
    with place.only_here():
        options = Options(dataset, model, engine=engine, threads=threads, keep_names=keep_names, storage=room)
        site = Site(place, options)
        rules = Rules(names_of(host, allow_host), origins, token, largest)
        app = create_app(site, rules)
        _say(site.models.current, bound.getsockname()[1], host, token)
        run(app, bound)


def _say(model: str | None, port: int, host: str, token: str | None) -> None:
    typer.echo(f"model {model}" if model else "no model yet: train one, or give --model FILE")
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    typer.echo(f"open {address}{f'?token={token}' if token else ''}")
    if token is not None:
        typer.echo("other machines can reach this; the connection is not encrypted: use it on a network you trust")
    typer.echo("stop with Ctrl-C")
