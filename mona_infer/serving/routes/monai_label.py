"""The part of MONAI Label's protocol that its plugins for 3D Slicer and OHIF use, so that neither needs one of ours.

Written from the calls of its client (monailabel 0.8.5).  An image is a case of the data set or a scan that was
uploaded; its id is looked up and never becomes a path.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body, File, Form, Query, Request, Response, UploadFile
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from mona_infer import __version__
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.nifti import write_mask
from mona_infer.io.read import label_ids, read_volume
from mona_infer.serving.dataset import Case
from mona_infer.serving.jobs import DONE, ENDED, RUNNING, SEGMENT_CASE, TRAIN, WAITING, Job
from mona_infer.serving.labels_sent import read_sent, with_our_ids
from mona_infer.serving.routes.common import file_answer, passing_file, refuse, the_job, told
from mona_infer.serving.routes.jobs import start_training
from mona_infer.serving.scans import LABEL, MASK, Scan, copy
from mona_infer.serving.site import Site, write_labels
from mona_infer.task import LabelClass

SESSION = 3600.0  # seconds that a session's scan is kept
LONGEST = 1800.0  # seconds that a client waits for a mask
LOOK = 0.05
STRATEGIES = {
    "doubtful": "The scan that `mona label next` advises, else the most doubtful one without a label",
    "random": "Any scan without a label",
}
TRAINER = "mona"


@dataclass
class Protocol:
    """What is remembered between a client's calls."""

    site: Site
    handed_out: set[str] = field(default_factory=set)  # so that asking again gives another scan

    def find(self, image: str) -> Case | Scan:
        if self.site.dataset is not None:
            with told(self.site):
                case = self.site.dataset.cases().get(image)
            if case is not None:
                return case
        return self.site.scans.get(image) or refuse(404, "there is no such image on the server")

    def next(self, strategy: str) -> Case | None:
        if strategy not in STRATEGIES:
            refuse(404, f"unknown strategy; choose one of {', '.join(STRATEGIES)}")
        waiting = [candidate.case for candidate in self.site.ordered() if candidate.labelled == "none"]
        fresh = [case for case in waiting if case.name not in self.handed_out]
        if not fresh:
            self.handed_out.clear()
            fresh = waiting
        if not fresh:
            return None
        chosen = random.choice(fresh) if strategy == "random" else fresh[0]
        self.handed_out.add(chosen.name)
        return chosen

    def training(self) -> Job | None:
        return next((job for job in reversed(self.site.jobs.all()) if job.kind == TRAIN), None)


def router(site: Site) -> APIRouter:
    api = APIRouter(tags=["MONAI Label"])
    protocol = Protocol(site)
    _information(api, protocol)
    _sessions(api, protocol)
    _datastore(api, protocol)
    _inference(api, protocol)
    _learning(api, protocol)
    return api


def _information(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.get("/info/")
    def info() -> dict[str, Any]:
        with told(site):
            current = site.models.current
            classes = site.models.model().task.classes if current is not None else ()
            job = protocol.training()
            models = {name: _model(site, name) for name in site.models.paths()} if current is not None else {}
            ordered = {current: models.pop(current)} | models if current in models else models
        return {
            "name": f"mona {__version__}",
            "description": "Semi-supervised segmentation: mona serve",
            "version": __version__,
            "labels": [c.name for c in (classes or (site.classes() if site.dataset else ())) if c.id],
            "models": ordered,
            "trainers": {TRAINER: {"description": "mona train on this data set"}} if site.can_train else {},
            "strategies": {name: {"description": words} for name, words in STRATEGIES.items()} if site.dataset else {},
            "scoring": {},
            "train_stats": {TRAINER: _statistics(job)} if job is not None else {},
            "datastore": _counts(site),
        }


def _model(site: Site, name: str) -> dict[str, Any]:
    task = site.models.model(name).task
    labels = {c.name: number for c, number in _numbers(task.classes).items() if c.id}
    return {"type": "segmentation", "labels": labels, "dimension": 3, "description": task.name, "config": {}}


def _numbers(classes: tuple[LabelClass, ...]) -> dict[LabelClass, int]:
    """Ids as they are; where one does not fit a byte, which OHIF wants, the classes are numbered."""
    fits = all(c.id < 256 for c in classes)
    return {c: c.id if fits else n for n, c in enumerate(classes)}


def _statistics(job: Job) -> dict[str, Any]:
    best = max((p["dsc"] for p in job.points if p.get("dsc") is not None), default=0.0)
    spent = {"total_time": job.ended - (job.started or job.created)} if job.ended is not None else {}
    return {"epoch": max(1, round(100 * job.progress)), "total_epochs": 100, "best_metric": best, **spent}


def _counts(site: Site) -> dict[str, Any]:
    if site.dataset is None:
        return {"total": len(list(site.scans)), "completed": 0}
    cases = site.dataset.cases().values()
    return {"total": len(cases), "completed": sum(case.label is not None for case in cases)}


def _sessions(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.put("/session/")
    def create(files: list[UploadFile]) -> dict[str, Any]:
        """Upload a scan for a while."""
        if len(files) != 1:
            refuse(422, f"expected one file (a DICOM series as a zip), found {len(files)}")
        with told(site):
            scan = site.scans.add(files[0].file, files[0].filename, expires=time.time() + SESSION)
        return {"session_id": scan.id, "session_info": _session(scan)}

    @api.get("/session/{id}")
    def get(id: str, image: bool = False) -> Any:
        scan = _of_session(site, id)
        return file_answer(site.scans.path(scan), f"{scan.id}-{scan.file}") if image else _session(scan)

    @api.delete("/session/{id}")
    def remove(id: str) -> dict[str, Any]:
        scan = _of_session(site, id)
        site.scans.remove(scan)
        return _session(scan)


def _session(scan: Scan) -> dict[str, Any]:
    left = max(0, round((scan.expires or 0.0) - time.time()))
    return {"name": scan.id, "image": scan.file, "meta": {}, "creation_ts": round(scan.created), "expiry": left}


def _of_session(site: Site, id: str) -> Scan:
    scan = site.scans.get(id)
    return scan if scan is not None and scan.expires is not None else refuse(404, "there is no such session")


def _datastore(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.get("/datastore/")
    def datastore(output: Literal["all", "train", "stats"] | None = None) -> Any:
        if output == "all":
            return {"name": "mona", "description": "", "objects": _objects(protocol)}
        if output == "train":
            return [{"image": name, "label": name} for name, entry in _objects(protocol).items() if entry["labels"]]
        return _counts(site)

    @api.put("/datastore/")
    @api.put("/datastore/image")
    def add_image(file: UploadFile, image: str = "", params: Annotated[str, Form()] = "{}") -> dict[str, str]:
        """Upload a scan, to be found again by the id that its client gives it."""
        with told(site):
            scan = site.scans.add(file.file, file.filename, called=image or None)
        return {"image": image or scan.id}

    @api.delete("/datastore/")
    @api.delete("/datastore/image")
    def remove_image(id: str) -> dict[str, str]:
        """Only what was uploaded: the data set is not a client's to delete."""
        scan = site.scans.get(id)
        if scan is None:
            refuse(404, "there is no such uploaded image; cases of the data set are not deleted from here")
        site.scans.remove(scan)
        return {}

    @api.get("/datastore/image")
    def image(image: str) -> Response:
        found = protocol.find(image)
        with told(site, _called(site, found)):
            path = site.case_image(found) if isinstance(found, Case) else site.scans.image(found)
        return file_answer(path, "image.nii.gz")

    @api.head("/datastore/image")
    def is_there(image: str) -> None:
        protocol.find(image)

    @api.get("/datastore/image/info")
    def image_info(image: str) -> dict[str, Any]:
        return {"id": image, **_image_entry(protocol.find(image))}

    @api.get("/datastore/label")
    def label(label: str, tag: str = "final") -> Response:
        """`final` is the label; `original` is what the model in use predicted."""
        found = protocol.find(label)
        with told(site, _called(site, found)):
            path = _label(site, found, tag)
        if path is None:
            refuse(404, "there is no such label")
        return file_answer(path, "label.nii.gz", once=path.parent == site.state.incoming)

    @api.put("/datastore/label")
    def save_label(
        image: str, label: UploadFile, tag: str = "", params: Annotated[str, Form()] = "{}"
    ) -> dict[str, Any]:
        """Save a label as the case's own; the old one is kept."""
        found = protocol.find(image)
        asked = _parsed(params)
        sent = passing_file(site, "")
        bare = (label.filename or "").endswith(".bin")
        try:
            with told(site, {**_called(site, found), str(sent): "the label", sent.name: "the label"}):
                copy(label.file, sent)
                changed = _save(site, found, sent, asked, bare=bare)
        finally:
            sent.unlink(missing_ok=True)
        protocol.handed_out.discard(image)
        return {"image": image, "label": image, "tag": tag or "final", "changed": changed}


def _called(site: Site, found: Case | Scan) -> dict[str, str]:
    if isinstance(found, Case):
        return {str(found.image): "the scan", str(found.label): "its label"}
    return site.scans.stands_for(site.scans.path(found), "the scan")


def _image_entry(found: Case | Scan) -> dict[str, Any]:
    return {"name": "image.nii.gz", "ext": ".nii.gz", "labelled": isinstance(found, Case) and found.label is not None}


def _objects(protocol: Protocol) -> dict[str, Any]:
    site, objects = protocol.site, {}
    with told(site):
        for candidate in site.ordered():
            labels = {}
            if candidate.labelled != "none":
                labels["final"] = {"ext": ".nii.gz", "info": {}}
            if candidate.prediction is not None:
                labels["original"] = {"ext": ".nii.gz", "info": {}}
            objects[candidate.case.name] = {"image": {"ext": ".nii.gz", "info": {}}, "labels": labels}
    return objects


def _label(site: Site, found: Case | Scan, tag: str) -> Path | None:
    if isinstance(found, Scan):
        path = site.scans.path(found, LABEL if tag == "final" else MASK)
        return path if path.exists() else None
    if tag == "original":
        prediction = site.prediction(found)
        return prediction.mask if prediction is not None else None
    if found.label is None:
        return None
    path = passing_file(site, ".nii.gz")
    site.case_label(found, path)
    return path


def _save(site: Site, found: Case | Scan, sent: Path, asked: dict[str, Any], *, bare: bool) -> bool:
    classes = site.classes()
    if isinstance(found, Case):
        assert site.dataset is not None
        image = site.dataset.image(found)
    else:
        image = site.scans.volume(found)
    label = with_our_ids(read_sent(sent, image, bare=bare), classes, asked.get("label_info"), numbered_by_idx=bare)
    if isinstance(found, Case):
        assert site.dataset is not None
        return site.dataset.save_label(found, label, {c.id for c in classes})
    write_mask(site.scans.path(found, LABEL), image.with_voxels(label_ids(on_grid_of(label, image))))
    return True


def _parsed(params: str) -> dict[str, Any]:
    try:
        found = json.loads(params or "{}")
    except (ValueError, RecursionError):
        refuse(422, "params: expected a JSON object")
    return found if isinstance(found, dict) else {}


def _inference(api: APIRouter, protocol: Protocol) -> None:
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
        asked = _parsed(params)

        def submitted() -> tuple[Job, Case | Scan]:
            with told(site):
                found: Case | Scan
                if file is not None:
                    found = site.scans.add(file.file, file.filename, expires=time.time() + SESSION)
                else:
                    found = _of_session(site, session_id) if session_id else protocol.find(image)
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
    numbers = _numbers(site.models.model(model).task.classes)
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


def _learning(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.post("/activelearning/{strategy}")
    def next_sample(strategy: str, params: Annotated[dict[str, Any] | None, Body()] = None) -> dict[str, Any]:
        """The scan to label next; empty when every scan has a label."""
        with told(site):
            case = protocol.next(strategy)
        return {"id": case.name, "name": f"{case.name}.nii.gz"} if case is not None else {}

    @api.get("/train/")
    def status(check_if_running: Annotated[bool, Query()] = False, all: bool = False) -> dict[str, Any]:
        job = protocol.training()
        if job is None or (check_if_running and job.state not in (WAITING, RUNNING)):
            refuse(404, "no training is running")
        return _task(job)

    @api.post("/train/")
    @api.post("/train/{model}")
    def train(model: str = TRAINER, params: Annotated[dict[str, Any] | None, Body()] = None) -> dict[str, Any]:
        job = protocol.training()
        if job is not None and job.state not in ENDED:
            refuse(429, "a training is running already")
        with told(site):
            return _task(start_training(site, {}))

    @api.delete("/train/")
    def stop() -> dict[str, Any]:
        job = protocol.training()
        if job is None or job.state in ENDED:
            refuse(404, "no training is running")
        site.jobs.cancel(job)
        return _task(the_job(site, job.id))


def _task(job: Job) -> dict[str, Any]:
    shown = job.shown()
    words = {"waiting": "PENDING", "running": "RUNNING", "done": "DONE", "failed": "ERROR", "cancelled": "REVOKED"}
    return {
        "id": job.id,
        "model": TRAINER,
        "status": words[job.state],
        "start_ts": shown["started"] or shown["created"],
        "end_ts": shown["ended"],
        "details": [job.message],
        "result": shown["result"] or {},
    }
