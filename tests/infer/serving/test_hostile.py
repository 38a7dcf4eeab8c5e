"""A hundred hostile requests at a listening server: none crashes it, none writes outside its folder, no job is lost."""

import os
import random
import socket
import struct
import threading
import time

import pytest
from helpers import models
from helpers.served import ask, dataset, form, listening, nifti, send, site_at

from mona_infer.serving.safety import Rules

PATHS = (
    "/../../../../etc/passwd", "/static/../../../pyproject.toml", "/static/%2e%2e/%2e%2e/app.py", "//etc/passwd",
    "/api/scans/../jobs", "/api/scans/%2e%2e%2fjobs/image", "/api/scans/..%5c..%5c/mask", "/api/cases/%00/image",
    "/api/cases/..%2f..%2fdataset.json/label", "/datastore/image?image=../../../etc/passwd",
    "/datastore/image?image=/etc/passwd", "/datastore/label?label=../../x&tag=../../y", "/session/../../etc",
    "/api/jobs/%2e%2e%2f%2e%2e/events", "/api/scans/" + "a" * 5000 + "/mask", "/api/cases/" + "%ff" * 50 + "/image",
    "/static/vendor/../../../../../../etc/hostname", "/infer/../../x", "/openapi.json/../../..", "/%",
)  # fmt: skip
PARTS = "multipart/form-data; boundary=b"
NAMES = ("../../evil.nii.gz", "/etc/cron.d/evil", "..\\..\\evil.nii", "a" * 3000, "x\0y", "evil\r\nX: y", "", ".", "..")


def raw(port, data, *, reset=False, wait=0.0):
    """What comes back, or b'' where the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as to:
        try:
            to.sendall(data)
            time.sleep(wait)
            if reset:
                to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            return to.recv(4096)
        except OSError:
            return b""


def request(method, path, body=b"", **headers):
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    if "Host" not in headers:
        lines.append("Host: localhost")
    if body and "Content_Length" not in headers and "Transfer_Encoding" not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace") + body


def hostile():
    """Name and bytes of each request, a hundred of them."""
    scan = nifti(models.scan(0, (12, 10, 3)))
    for path in PATHS:
        yield "path", request("GET", path)
    for path in PATHS[:16]:
        yield "path put", request("PUT", path, scan)
        yield "path delete", request("DELETE", path)
    for name in NAMES:
        body, kind = form(scan[:50], filename=name)
        yield "name", request("POST", "/api/scans", body, Content_Type=kind["content-type"])
        yield (
            "name",
            request("PUT", f"/datastore/?image={name[:50].encode().hex()}", body, Content_Type=kind["content-type"]),
        )
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost:80@evil", "", "xn--e28h.example"):
        yield "rebinding", request("GET", "/api/cases", Host=host)
    for origin in ("http://evil.example", "null", "http://localhost.evil.example", "chrome-extension://x"):
        yield "cross-origin", request("POST", "/api/jobs", b'{"kind": "train"}', Origin=origin)
        yield "cross-origin", request("POST", "/train/", b"{}", Origin=origin, Content_Type="text/plain")
    for length in ("99999999999999", "-1", "1e9", "0x10", "5\r\nContent-Length: 6"):
        yield (
            "length",
            request("POST", "/api/scans", b"x", Content_Length=length, Content_Type="multipart/form-data; boundary=x"),
        )
    for body in (b"[" * 100_000, b'{"kind": ' * 20_000, b"\xff" * 1000, b'{"kind": "train", "steps": 1e999}', b"NaN"):
        yield "json", request("POST", "/api/jobs", body, Content_Type="application/json")
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", "text/plain", "image/png", "a" * 2000):
        yield "type", request("POST", "/api/scans", scan, Content_Type=kind)
    many = (
        b"".join(b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n' % n for n in range(3000))
        + b"--b--\r\n"
    )
    yield "fields", request("POST", "/api/scans", many, Content_Type="multipart/form-data; boundary=b")
    yield "chunks", request("POST", "/api/scans", b"ffffffffffffffff\r\nx", Transfer_Encoding="chunked")
    yield (
        "smuggling",
        request(
            "POST", "/api/scans", b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n", Transfer_Encoding="chunked", Content_Length="5"
        ),
    )
    yield "no http", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200)
    yield "headers", request("GET", "/", **{f"X_{n}": "y" * 900 for n in range(200)})
    yield "method", request("TRACE", "/api/info")
    yield "method", request("CONNECT", "evil.example:443")
    yield (
        "websocket",
        request("GET", "/api/info", Upgrade="websocket", Sec_WebSocket_Key="x", Sec_WebSocket_Version="13"),
    )
    yield "label", request("PUT", "/api/cases/heart0/label", os.urandom(3000))
    yield (
        "infer",
        request("POST", "/infer/bands?image=../../x", b"params={}", Content_Type="application/x-www-form-urlencoded"),
    )
    yield "learning", request("POST", "/activelearning/__import__('os')", b"{}", Content_Type="application/json")


def everything_under(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "state" not in p.relative_to(folder).parts}


@pytest.mark.parametrize("at_once", [False, True], ids=["one after another", "50 at once"])
def test_a_hundred_hostile_requests(tmp_path, model, at_once):
    folder = dataset(tmp_path / "data", labelled=1, unlabelled=1)
    with site_at(tmp_path, model=model, dataset=folder) as site, listening(site, Rules(idle=1.0, grace=3.0)) as address:
        port = int(address.rpartition(":")[2])
        before = everything_under(tmp_path)
        asked = [send(address, nifti(models.scan(n))) for n in range(3)]
        cases = list(hostile())
        assert len(cases) >= 100
        answers = [b""] * len(cases)

        def attack(numbers):
            for n in numbers:
                answers[n] = raw(port, cases[n][1], reset=at_once and n % 5 == 0)

        if at_once:
            random.Random(0).shuffle(cases)
            threads = [threading.Thread(target=attack, args=(range(k, len(cases), 50),)) for k in range(50)]
            for thread in threads:
                thread.start()
            asked += [send(address, nifti(models.scan(n))) for n in range(3)]  # an honest user meanwhile
            for thread in threads:
                thread.join()
        else:
            attack(range(len(cases)))
        for (name, _), answer in zip(cases, answers, strict=True):
            status = int(answer[9:12]) if answer[:5] == b"HTTP/" else None
            assert (
                status is None or 400 <= status < 500 or (status == 200 and name in ("path", "headers", "websocket"))
            ), (
                name,
                answer,
            )
            assert b"Traceback" not in answer and str(tmp_path).encode() not in answer and b"root:" not in answer
        until = time.monotonic() + 60
        while any(ask(f"{address}/api/jobs/{id}")["state"] in ("waiting", "running") for id in asked):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert {ask(f"{address}/api/jobs/{id}")["state"] for id in asked} == {"done"}  # jobs lost: 0
        assert {job["id"] for job in ask(f"{address}/api/jobs")} == set(asked)  # and none came from elsewhere
        assert before == everything_under(tmp_path)
        assert all(lane.is_alive() for lane in site.lanes)
        known = {"scans", "jobs", "predictions", "incoming", "thumbnails", "serve.lock", "model.json"}
        assert {p.name for p in (tmp_path / "state").iterdir()} <= known
        assert not list((tmp_path / "state" / "incoming").iterdir())
        assert {p.name for d in (tmp_path / "state" / "scans").iterdir() for p in d.iterdir()} <= {
            "scan.nii.gz", "scan.json", "mask.nii.gz"}  # fmt: skip
