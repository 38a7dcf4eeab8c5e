"""Who may ask, from where, how much, how slowly."""

import socket
import threading
import time

import pytest
from helpers import models
from helpers.served import client_at, form, listening, nifti, site_at, upload

from mona_infer.serving.safety import Rules, loopback, names_of

TOKEN = "a-token-for-tests"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1", "192.168.1.7:8000"])
def test_names_of_this_machine_are_answered(client, host):
    assert client.get("/api/info", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.nip.io:8000", "localhost.evil.example", "", "localhost@evil.example", "[::1", "a b"],
)
def test_a_rebound_name_is_refused(client, host):
    answer = client.get("/api/info", headers={"host": host})
    assert answer.status_code in (400, 421) and "model" not in answer.json()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:1"},
        {"origin": "http://127.0.0.1.evil.example"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    ],
)
def test_pages_elsewhere_may_not_ask(client, headers):
    for method, path in (("GET", "/api/cases"), ("POST", "/api/jobs"), ("PUT", "/session/"), ("OPTIONS", "/api/jobs")):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers


def test_our_own_page_may(client):
    assert client.get("/api/info", headers={"origin": "http://127.0.0.1"}).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers=link | {"sec-fetch-dest": "iframe"}).status_code == 403


def test_a_trusted_page_elsewhere_may(tmp_path, model):
    page = "http://localhost:3000"
    with client_at(tmp_path, Rules(origins=frozenset([page])), model=model) as client:
        asked = client.options("/infer/x", headers={"origin": page, "access-control-request-method": "POST"})
        assert asked.status_code == 204 and asked.headers["access-control-allow-origin"] == page
        assert client.get("/info/", headers={"origin": page}).headers["access-control-allow-origin"] == page
        assert client.get("/info/", headers={"origin": "http://localhost:3001"}).status_code == 403


def test_nothing_is_answered_without_the_token(tmp_path, model):
    with client_at(tmp_path, Rules(token=TOKEN), model=model) as client:
        for path in ("/", "/api/info", "/openapi.json", "/static/x.js", "/info/", "/nowhere"):
            assert client.get(path).status_code == 401
        for given in ("", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
            assert client.get("/api/info", headers={"authorization": given.encode()}).status_code == 401
        assert client.get("/api/info", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/api/info", params={"token": TOKEN}).status_code == 401  # only the page takes it so


def test_the_page_keeps_the_token_in_a_cookie(tmp_path, model):
    with client_at(tmp_path, Rules(token=TOKEN), model=model) as client:
        assert client.get("/", params={"token": "wrong"}).status_code == 401
        entered = client.get("/", params={"token": TOKEN}, follow_redirects=False)
        cookie = entered.headers["set-cookie"]
        assert entered.status_code == 303 and "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert client.get("/api/info").status_code == 200


def test_what_a_token_is_for():
    assert loopback("127.0.0.1") and loopback("localhost") and loopback("::1") and loopback("127.9.9.9")
    assert not loopback("0.0.0.0") and not loopback("192.168.1.7") and not loopback("::") and not loopback("example")
    assert "example" in names_of("0.0.0.0", ["Example"])


def test_every_answer_says_what_a_browser_may_do(client):
    for path in ("/", "/api/info", "/nowhere"):
        headers = client.get(path).headers
        assert (
            "default-src 'self'" in headers["content-security-policy"]
            and "http" not in headers["content-security-policy"]
        )
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin" and "server" not in headers


def test_uploads_have_a_largest_size(tmp_path, model):
    with client_at(tmp_path, Rules(upload_bytes=30_000), model=model) as client:
        assert upload(client, nifti(models.scan())).status_code == 201
        big = bytes(40_000)
        assert upload(client, big).status_code == 413
        body, kind = form(big)
        parts = (body[n : n + 1000] for n in range(0, len(body), 1000))
        assert client.post("/api/scans", content=parts, headers=kind).status_code == 413  # no length is declared
        assert client.put("/api/cases/x/label", content=big).status_code in (404, 413)
        assert client.post("/api/jobs", content=b'{"kind": "' + b"x" * (1 << 20) + b'"}',
                           headers={"content-type": "application/json"}).status_code == 413  # fmt: skip
    assert len(list((tmp_path / "state" / "scans").iterdir())) == 1
    assert not list((tmp_path / "state" / "incoming").iterdir())


def test_slow_senders_are_given_up(tmp_path, model, monkeypatch):
    from mona_infer.serving import run

    monkeypatch.setattr(run, "SILENT", 0.5)
    with site_at(tmp_path, model=model) as site, listening(site, Rules(idle=0.3, grace=1.0)) as address:
        port = int(address.rpartition(":")[2])
        answers = []

        def slowly(first: bytes, more: bytes) -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as to:
                to.sendall(first)
                try:
                    for n in range(60):
                        to.sendall(more[n : n + 1] or b"x")
                        time.sleep(0.05)
                        if n == 5 and b"stop" in more:
                            break
                    answers.append(to.recv(100))
                except OSError:
                    answers.append(b"closed")

        head = b"POST /api/scans HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        senders = [
            (head + b"Content-Length: 5000\r\n\r\n", b"--b\r\nstop"),  # stops in the middle
            (head + b"Content-Length: 5000\r\n\r\n", b""),  # a byte now and then
            (b"GET /api/info HTTP/1.1\r\nHost: local", b""),  # never finishes its headers
            (b"", b"G"),
        ]
        threads = [threading.Thread(target=slowly, args=sender) for sender in senders]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 15
        assert len(answers) == 4
        assert all(answer in (b"", b"closed") or b"408" in answer or b"400" in answer for answer in answers), answers
