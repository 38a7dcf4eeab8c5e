"""Listening: the socket, uvicorn's settings, and connections that never say what they want."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from mona_infer.errors import InputError

SILENT = 20.0  # seconds for a request's first line and headers
MOST = 200  # connections at a time; others are told to come back


class Hurried(H11Protocol):
    """Closes a connection whose headers do not arrive in time: uvicorn itself would wait for them forever."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit = self.loop.call_later(SILENT, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """Bound before anything is loaded, so that a port in use is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen()  # from now on requests wait instead of being refused
    except (OSError, OverflowError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot listen on {host}, port {port} ({reason}); choose another with --port") from error
    return bound


def server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=Hurried,
        ws="none",
        log_level="critical",  # its sentences quote requests; ours are told by mona.serve
        access_log=False,  # addresses hold the names of cases
        server_header=False,
        proxy_headers=False,  # what a client says of its own address is worth nothing
        limit_concurrency=MOST,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, bound: socket.socket) -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("mona.serve").setLevel(logging.INFO)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every damaged upload
    server(app).run(sockets=[bound])
