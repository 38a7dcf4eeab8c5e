"""What stands in front of every request: who may ask, from which page, how much may be sent and how slowly.

- Host: a page from elsewhere can make its own name resolve to 127.0.0.1 (DNS rebinding) and then shares our origin.
  Only names that are this machine's are answered.
- Origin: a page from elsewhere can send requests here without reading the answers.  Nothing is done for one.
- Token: needed wherever other machines can reach the server, and where `--token` asks for it.
- Bodies: counted as they arrive, whatever their header says, and given up when they are too large or too slow.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?", re.ASCII)
COOKIE = "mona_token"
OPEN = ("/auth/", "/auth/token", "/auth/token/valid")  # how a MONAI Label client asks whether it needs a token
TEXT_BYTES = 1 << 20  # of a body that is not a file
AT_ONCE = 8  # bodies that are received at a time; others wait for their turn
TURN = 60.0  # seconds to wait for it
IDLE = 20.0  # seconds between two parts of a body
GRACE, SLOWEST = 60.0, 50_000  # a body may take GRACE seconds and as long as it takes at SLOWEST bytes a second
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; script-src 'self' "
    "'wasm-unsafe-eval' blob:; worker-src 'self' blob:; connect-src 'self' blob: data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Rules:
    hosts: frozenset[str] = frozenset()  # names of this machine beside the loopback's
    origins: frozenset[str] = frozenset()  # pages elsewhere that may ask, such as OHIF's
    token: str | None = None
    upload_bytes: int = 2 << 30
    idle: float = IDLE
    grace: float = GRACE

    def host_is_ours(self, host: str) -> bool:
        """A bare address cannot be rebound, so it is allowed; of names only those that are known."""
        name = _name(host)
        return name in LOOPBACK or name in self.hosts or _is_address(name)

    def origin_is_ours(self, origin: str, host: str) -> bool:
        parts = urlsplit(origin)
        return origin in self.origins or (parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower())

    def token_is_right(self, given: str) -> bool:
        return self.token is None or hmac.compare_digest(given.encode(), self.token.encode())


def loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _name(host: str) -> str:
    """The name of a Host header, without its port; empty for what is none."""
    found = HOST.fullmatch(host)
    return found[1].strip("[]").rstrip(".").lower() if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@dataclass
class Guard:
    app: ASGIApp
    rules: Rules
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there is no websocket here
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin if origin in self.rules.origins else None
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send, allowed))
            return
        if allowed and scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, _with_headers(send, allowed))
            return
        body = Body(receive, self.rules, headers)
        if body.expected and not await self._turn():
            busy = _refused(503, "the server is receiving other files; try again in a minute")
            await busy(scope, receive, _with_headers(send, allowed))
            return
        try:
            await self.app(scope, body, _with_headers(send, allowed))
        finally:
            if body.expected:
                self._turns.release()

    async def _turn(self) -> bool:
        try:
            await asyncio.wait_for(self._turns.acquire(), TURN)
        except TimeoutError:
            return False
        return True

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.rules.host_is_ours(hosts[0]):
            return _refused(
                421, "this server answers only to this machine's own names; use the address that `mona serve` printed"
            )
        origins = headers.getlist("origin")
        if len(origins) > 1 or any(not self.rules.origin_is_ours(origin, hosts[0]) for origin in origins):
            return _refused(
                403, "this request comes from another web page; start `mona serve` with --allow-origin if you trust it"
            )
        if not origins and headers.get("sec-fetch-site") == "cross-site" and not _opens_the_page(scope, headers):
            return _refused(403, "this request comes from another web page")
        if self.rules.token is None or scope["path"] in OPEN or (origins and scope["method"] == "OPTIONS"):
            return None
        return self._token_refusal(scope, headers)

    def _token_refusal(self, scope: Scope, headers: Headers) -> Response | None:
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["method"] == "GET" and scope["path"] == "/" and asked and self.rules.token_is_right(asked[0]):
            entered = RedirectResponse("/", 303)  # the token leaves the address bar, and with it the history
            entered.set_cookie(COOKIE, asked[0], httponly=True, samesite="strict")
            return entered
        scheme, _, given = headers.get("authorization", "").partition(" ")
        found = given.strip() if scheme.lower() == "bearer" else _cookie(headers)
        if found is not None and self.rules.token_is_right(found):
            return None
        return _refused(401, "a token is needed: open the address with ?token=... that `mona serve` printed")


def _opens_the_page(scope: Scope, headers: Headers) -> bool:
    """A link elsewhere may lead here; it may not embed anything of ours."""
    return scope["method"] == "GET" and scope["path"] == "/" and headers.get("sec-fetch-dest") == "document"


def _cookie(headers: Headers) -> str | None:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None else None


def _refused(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status, {"Connection": "close"})


class Body:
    """Receives a request's body: no more than may be sent, and no slower."""

    def __init__(self, receive: Receive, rules: Rules, headers: Headers) -> None:
        self._receive, self._rules = receive, rules
        kind, length = headers.get("content-type", "").lower(), headers.get("content-length")
        self._most = TEXT_BYTES if kind.startswith(("application/json", "text/")) else rules.upload_bytes
        self.expected = (length is not None and length != "0") or "transfer-encoding" in headers
        self._declared = int(length) if length is not None and length.isdecimal() and len(length) < 20 else 0
        self._count, self._began, self._complete = 0, time.monotonic(), not self.expected

    async def __call__(self) -> Message:
        if self._complete:  # what comes now is only that the client has gone
            return await self._receive()
        if self._declared > self._most:
            raise HTTPException(413, f"at most {self._most} bytes can be sent; this is {self._declared}")
        slow = HTTPException(408, "the file arrived too slowly; try again", {"Connection": "close"})
        left = self._began + self._rules.grace + self._count / SLOWEST - time.monotonic()
        if left <= 0:
            raise slow
        try:
            message = await asyncio.wait_for(self._receive(), min(left, self._rules.idle))
        except TimeoutError:
            raise slow from None
        self._count += len(message.get("body", b""))
        if self._count > self._most:
            raise HTTPException(413, f"at most {self._most} bytes can be sent", {"Connection": "close"})
        self._complete = not message.get("more_body", False)
        return message


def _with_headers(send: Send, allowed: str | None) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if allowed is not None:
                _allow(headers, allowed)
        await send(message)

    return sending


def _allow(headers: MutableHeaders, origin: str) -> None:
    """A page elsewhere that the user trusts may read the answers."""
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Allow-Methods"] = "GET, POST, PUT, DELETE"
    headers["Access-Control-Allow-Headers"] = "authorization, content-type, accept"
    headers["Cross-Origin-Resource-Policy"] = "cross-origin"
    headers.add_vary_header("Origin")


def names_of(host: str, given: Iterable[str] = ()) -> frozenset[str]:
    """The names by which this machine may be asked when the server is bound to `host`."""
    import socket

    found = {name.lower() for name in given}
    if not loopback(host):
        found |= {socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()}
    return frozenset(found)
