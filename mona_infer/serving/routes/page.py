"""The page: its files as they were when the server started, looked up by name; and NiiVue, where it is installed."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse, PlainTextResponse

from mona_infer.serving.routes.common import refuse
from mona_infer.viewing import niivue

STATIC = Path(__file__).parents[1] / "static"
NIIVUE = "vendor/niivue.js"
WORDS = "mona serve is running. This installation has no page; the API is described in /openapi.json.\n"


def router() -> APIRouter:
    files = {p.relative_to(STATIC).as_posix(): p for p in STATIC.rglob("*") if p.is_file()}
    if niivue.library() is not None:
        files[NIIVUE] = niivue.LIBRARY
    page = APIRouter(include_in_schema=False)

    @page.get("/")
    def index() -> Response:
        return _answer(files["index.html"]) if "index.html" in files else PlainTextResponse(WORDS)

    @page.get("/static/{name:path}")
    def static(name: str) -> Response:
        return _answer(files[name]) if name in files else refuse(404, "there is no such file")

    return page


def _answer(path: Path) -> FileResponse:
    kind = "text/javascript" if path.suffix in (".js", ".mjs") else mimetypes.guess_type(path.name)[0]
    return FileResponse(path, media_type=kind or "application/octet-stream")
