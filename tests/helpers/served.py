"""`mona serve` for tests: in this process behind a test client, listening on a port, or as the real command."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from fastapi.testclient import TestClient
from pydicom.uid import generate_uid

from helpers import models
from helpers.dicom_files import write_series
from mona_infer.serving.app import create_app
from mona_infer.serving.run import listen
from mona_infer.serving.run import server as server_of
from mona_infer.serving.safety import Rules
from mona_infer.serving.site import Options, Site
from mona_infer.serving.state import State
from mona_infer.task import LabelClass

HERE = "http://127.0.0.1"
THICK = np.diag([1.5, 1.5, 8.0, 1.0])
PATIENCE = 60.0  # seconds


@contextlib.contextmanager
def site_at(folder: Path, **options: Any) -> Iterator[Site]:
    """Without workers: what is submitted waits until `site.open()`."""
    state = State(folder / "state")
    with state.only_here():
        site = Site(state, Options(runs=folder / "runs", threads=1, engine="cpu", **options))
        try:
            yield site
        finally:
            site.jobs.close()
            for lane in site.lanes:
                if lane.is_alive():
                    lane.join(PATIENCE)


@contextlib.contextmanager
def client_at(folder: Path, rules: Rules | None = None, **options: Any) -> Iterator[TestClient]:
    with site_at(folder, **options) as site:
        app = create_app(site, rules or Rules())
        with TestClient(app, base_url=HERE, raise_server_exceptions=False) as client:
            client.site = site
            yield client


@contextlib.contextmanager
def listening(site: Site, rules: Rules | None = None) -> Iterator[str]:
    """The address of a real server in a thread."""
    bound = listen("127.0.0.1", 0)
    server = server_of(create_app(site, rules or Rules()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    try:
        yield f"{HERE}:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        bound.close()


class Process:
    """The real command."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        self.output = (cwd / "served.txt").open("w+b")
        command = [sys.executable, "-m", "mona_infer.serving.child", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=self.output, stderr=subprocess.STDOUT, env=dict(os.environ)
        )
        until = time.monotonic() + PATIENCE
        while b"open http" not in (said := self.said()):
            assert self.process.poll() is None and time.monotonic() < until, said
            time.sleep(0.05)
        self.address = said.split(b"open ")[1].split()[0].decode().rstrip("/")

    def said(self) -> bytes:
        return Path(self.output.name).read_bytes()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Its own input closes, as that of a child of a server would: it gets Ctrl-C's signal."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


def ask(address: str, method: str = "GET", body: Any = None, **headers: str) -> Any:
    """JSON from a listening server; of a refusal, the status."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    if not isinstance(body, bytes) and body is not None:
        headers["content-type"] = "application/json"
    request = urllib.request.Request(address, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        return error.code
    return json.loads(content) if content[:1] in (b"{", b"[") else content


def form(content: bytes, name: str = "file", filename: str = "scan") -> tuple[bytes, dict[str, str]]:
    """A multipart body with one file, and its header."""
    edge = "mona-test"
    body = f'--{edge}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'.encode()
    return body + content + f"\r\n--{edge}--\r\n".encode(), {"content-type": f"multipart/form-data; boundary={edge}"}


def send(address: str, content: bytes) -> str:
    """Send a scan to a listening server and ask for its mask: the job's id."""
    body, kind = form(content)
    scan = ask(f"{address}/api/scans", "POST", body, **kind)["id"]
    return str(ask(f"{address}/api/jobs", "POST", {"kind": "segment", "scan": scan})["id"])


def ended(client: TestClient, id: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE
    while (job := client.get(f"/api/jobs/{id}").json())["state"] not in ("done", "failed", "cancelled"):
        assert time.monotonic() < until, job
        time.sleep(0.02)
    return job


def upload(client: TestClient, content: bytes, name: str = "scan.nii.gz") -> Any:
    return client.post("/api/scans", files={"file": (name, content)})


def segmented(client: TestClient, content: bytes, name: str = "scan.nii.gz") -> tuple[str, dict[str, Any]]:
    """The scan's id and its finished job."""
    id = upload(client, content, name).json()["id"]
    return id, ended(client, client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"])


def nifti(voxels: np.ndarray, affine: np.ndarray = THICK) -> bytes:
    """A .nii.gz in memory."""
    import gzip

    return gzip.compress(nib.Nifti1Image(voxels, affine).to_bytes(), 1)


def voxels_of(content: bytes) -> np.ndarray:
    import gzip

    return np.asarray(nib.Nifti1Image.from_bytes(gzip.decompress(content)).dataobj)


def dicom_zip(folder: Path, seed: int = 0, **changes: Any) -> bytes:
    """A zip of a series whose members are named after a patient."""
    study = {"StudyInstanceUID": generate_uid(), "FrameOfReferenceUID": generate_uid()}
    write_series(folder, models.scan(seed), THICK, **study, **changes)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for n, path in enumerate(sorted(folder.iterdir())):
            archive.write(path, f"Erika Mustermann/{n:03d}.dcm")
    return packed.getvalue()


def labels(seed: int = 0, shape: tuple[int, int, int] = (40, 36, 5)) -> np.ndarray:
    return (models.scan(seed, shape) // 260).astype(np.uint8)  # 0..3


def dataset(root: Path, labelled: int = 2, unlabelled: int = 3) -> Path:
    """nnU-Net's layout, with the classes of the models in `helpers.models`."""
    for n in range(labelled + unlabelled):
        path = root / "imagesTr" / f"heart{n}_0000.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(nifti(models.scan(n)))
        if n < labelled:
            (root / "labelsTr").mkdir(exist_ok=True)
            (root / "labelsTr" / f"heart{n}.nii.gz").write_bytes(nifti(labels(n)))
    names: dict[str, int] = {c.name: c.id for c in models.TASK.classes}
    about = {"name": "small", "channel_names": {"0": "MRI"}, "labels": names, "file_ending": ".nii.gz"}
    (root / "dataset.json").write_text(json.dumps(about))
    return root


def classes() -> tuple[LabelClass, ...]:
    return models.TASK.classes
