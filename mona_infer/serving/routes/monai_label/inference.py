"""/infer/MODEL: an image in, its mask out."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from mona_infer.io.read import label_ids, read_volume
from mona_infer.serving.dataset import Case
from mona_infer.serving.jobs import DONE, ENDED, SEGMENT_CASE, Job
from mona_infer.serving.routes.common import file_answer, passing_file, refuse, told
from mona_infer.serving.routes.monai_label.protocol import (
    SESSION,
    Protocol,
    numbers_of,
    of_session,
    parsed,
)
from mona_infer.serving.scans import MASK, Scan
from mona_infer.serving.site import Site, write_labels
from mona_infer.task import LabelClass

LONGEST = 1800.0  # seconds that a client waits for a mask
LOOK = 0.05


def add_inference(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.post("/infer/{model}")
    async def infer(
        request: Request,
        model: str,
        image: str = "",
        session_id: str = "",
        output: Literal["image", "json", "all"] | None = None,
        params: Annotated[str, Form()] = "{}",
        file: Annotated[UploadFile | None, File()] = None,
        label: Annotated[UploadFile | None, File()] = None,
    ) -> Response:
        """Segment an image, a session's scan or a file, and answer with the mask."""
        asked = parsed(params)

        def submitted() -> tuple[Job, Case | Scan]:
            with told(site):
                found: Case | Scan
                if file is not None:
                    found = site.scans.add(file.file, file.filename, expires=time.time() + SESSION)
                else:
                    found = of_session(site, session_id) if session_id else protocol.find(image)
                if isinstance(found, Scan):
                    return site.segment(found, model), found
                site.models.model(model)
                return site.jobs.submit(SEGMENT_CASE, {"case": found.name, "name": found.name, "model": model}), found

        job, found = await run_in_threadpool(submitted)
        await _ended(site, job, request)
        if job.state != DONE:
            refuse(422, job.message)
        return await run_in_threadpool(_mask_answer, site, job, found, model, asked, output)


async def _ended(site: Site, job: Job, request: Request) -> None:
    """Wait without holding a thread; a client that has gone no longer wants the mask."""
    until = time.monotonic() + LONGEST
    while job.state not in ENDED:
        if site.jobs.closing:
            refuse(503, "the server is being stopped")
        if time.monotonic() > until or await request.is_disconnected():
            await run_in_threadpool(site.jobs.cancel, job)
            refuse(504, "the mask was not made in time")
        await asyncio.sleep(LOOK)


def _mask_answer(
    site: Site, job: Job, found: Case | Scan, model: str, asked: dict[str, Any], output: str | None
) -> Response:
    numbers = numbers_of(site.models.model(model).task.classes)
    about = {"label_names": {c.name: n for c, n in numbers.items() if c.id}, "report": job.result}
    if output == "json":
        return Response(json.dumps(about), media_type="application/json")
    if isinstance(found, Case):
        prediction = site.prediction(found, model)
        mask = prediction.mask if prediction is not None else refuse(404, "the mask is no longer there")
    else:
        mask = site.scans.path(found, MASK)
    wanted = str(asked.get("result_extension") or ".nii.gz")
    ending = wanted if wanted in (".nrrd", ".seg.nrrd", ".nii") else ".nii.gz"
    path = mask
    if ending != ".nii.gz":
        path = passing_file(site, ending)
        _write_result(site, mask, path, model, numbers, packed=asked.get("result_compress", True) is not False)
    passing = BackgroundTask(path.unlink, missing_ok=True) if path != mask else None
    name = f"{job.id}{ending}"
    if output == "image":
        return file_answer(path, name, once=passing is not None)
    body, kind = _multipart(about, path.read_bytes(), name)
    return Response(body, media_type=kind, background=passing)


def _write_result(
    site: Site, mask: Path, path: Path, model: str, numbers: dict[LabelClass, int], *, packed: bool
) -> None:
    volume = read_volume(mask)
    voxels = label_ids(volume)
    if any(c.id != n for c, n in numbers.items()):
        table = [0] * (max(c.id for c in numbers) + 1)
        for c, n in numbers.items():
            table[c.id] = n
        voxels = np.array(table, np.uint8)[voxels]
    write_labels(path, volume.with_voxels(voxels), site.models.model(model).task.classes, packed=packed)


def _multipart(about: dict[str, Any], mask: bytes, name: str) -> tuple[bytes, str]:
    """Two parts, as the client reads them: `params`, then the file."""
    boundary = f"mona-{random.getrandbits(96):024x}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="params"\r\nContent-Type: application/json\r\n\r\n'
        f"{json.dumps(about)}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + mask + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
