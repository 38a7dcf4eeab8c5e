"""The rooms put together as one ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from mona_infer import __version__
from mona_infer.serving.routes import cases, entry, info, jobs, monai_label, page, scans
from mona_infer.serving.safety import Guard, Rules
from mona_infer.serving.segmenting_lane import log_bug
from mona_infer.serving.site import Site


def create_app(site: Site, rules: Rules) -> ASGIApp:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        site.open()
        try:
            yield
        finally:
            await run_in_threadpool(site.close)

    # Not the interactive docs: their page loads its scripts from another host.
    app = FastAPI(title="mona serve", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _bug)
    routers = [info.router(site, rules.upload_bytes), *(room.router(site) for room in (scans, jobs, cases))]
    for router in (*routers, monai_label.router(site), entry.router(rules), page.router()):
        app.include_router(router)
    return Guard(app, rules)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """What is wrong and where, without what was sent."""
    assert isinstance(error, RequestValidationError)
    parts = [f"{'.'.join(str(p) for p in e['loc'][1:]) or 'body'}: {e['msg']}" for e in error.errors()[:3]]
    return JSONResponse({"detail": "; ".join(parts)[:300]}, 422)


async def _bug(request: Request, error: Exception) -> JSONResponse:
    log_bug(error)
    return JSONResponse({"detail": "this failed on the server; its log says more"}, 500)
