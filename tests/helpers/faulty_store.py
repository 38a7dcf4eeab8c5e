"""An S3 store on loopback (moto) that fails a share of its answers in every way a network can, by a seeded draw."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import contextmanager

BUCKET = "hospital"
PAGE = b"<html><body>bad gateway</body></html>"
XML = b'<?xml version="1.0"?><Error><Code>%s</Code><Message>later</Message></Error>'
KINDS = ("500", "503", "proxy", "lost", "reset", "cut", "short", "flipped")


class Faulty:
    """A WSGI application around another: `share` of its answers fail, many after the request was carried out."""

    def __init__(self, app, seed=0, share=0.0):
        self.app, self.share, self.rule = app, share, None
        self.asked, self.failed, self.requests = 0, Counter(), []
        self._draw, self._lock = random.Random(seed), threading.Lock()

    def __call__(self, environ, start_response):
        kind = self._kind(environ)
        if kind is None:
            return self.app(environ, start_response)
        self.failed[kind] += 1
        if kind == "silent":  # by a rule only: it takes its time
            time.sleep(2)
        if kind in ("500", "503", "proxy", "403", "silent"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _answer(start_response, kind)
        told = {}

        def tell(status, headers, *_):
            told["status"], told["headers"] = status, headers

        body = b"".join(self.app(environ, tell))  # carried out; only the answer is lost
        if kind == "lost":
            return _answer(start_response, "500")
        if kind == "reset" or len(body) < 2 or not told["status"].startswith("2"):
            _reset(environ)
            return [b""]
        headers = [(k, v) for k, v in told["headers"] if k.lower() not in ("content-length", "connection")]
        cut = body[: len(body) // 2]
        if kind == "flipped" and environ["REQUEST_METHOD"] == "GET" and b"<?xml" not in body[:5]:
            cut = body = bytes([body[0] ^ 1]) + body[1:]
        elif kind == "short" and b"<?xml" not in body[:5]:
            body = cut
        start_response(told["status"], [*headers, ("Content-Length", str(len(body))), ("Connection", "close")])
        return _broken(cut, len(cut) < len(body), environ)

    def _kind(self, environ):
        with self._lock:
            self.asked += 1
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"]))
            if self.rule is not None:
                return self.rule(*self.requests[-1])
            return self._draw.choice(KINDS) if self._draw.random() < self.share else None


def _answer(start_response, kind):
    status = {
        "500": "500 Internal Server Error",
        "503": "503 Slow Down",
        "proxy": "502 Bad Gateway",
        "403": "403 Forbidden",
    }[kind]
    codes = {"503": b"SlowDown", "403": b"AccessDenied"}
    body = PAGE if kind == "proxy" else XML % codes.get(kind, b"InternalError")
    start_response(status, [("Content-Length", str(len(body))), ("Connection", "close")])
    return [body]


def _broken(data, early, environ):
    yield data
    if early:
        _reset(environ)


def _reset(environ):
    sock = environ["werkzeug.socket"]
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()


class Store:
    """The running store; `s3` is boto3's client, which never meets a fault."""

    def __init__(self, server, direct, faults):
        import boto3
        from botocore.config import Config

        self.faults = faults
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.env = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret-of-anyone",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self.s3 = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{direct.server_port}",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )
        self.s3.create_bucket(Bucket=BUCKET)

    def put(self, key, data):
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=data)

    def get(self, key):
        return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def keys(self, prefix=""):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return sorted(found["Key"] for page in pages for found in page.get("Contents", ()))

    def unfinished(self):
        return self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])


@contextmanager
def store(seed=0, share=0.0):
    """moto keeps its objects for the process, so they are dropped at the end."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    app = DomainDispatcherApplication(create_backend_app)
    faults = Faulty(app, seed, share)
    servers = [make_server("127.0.0.1", 0, wsgi, threaded=True) for wsgi in (faults, app)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield Store(*servers, faults)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for account in list(s3_backends.values()):
            for backend in account.values():
                backend.reset()
