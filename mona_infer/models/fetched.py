"""A model from a store: fetched, checked and held in memory like any other, and no longer on this disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mona_infer.io.remote import fetch
from mona_infer.io.remote.place import parse
from mona_infer.models.file import Model, read_model


def fetched_model(place: str) -> Model:
    with TemporaryDirectory(prefix="mona-") as folder:
        model = read_model(fetch(place, Path(folder)))
    return replace(model, path=Path(parse(place).path))
