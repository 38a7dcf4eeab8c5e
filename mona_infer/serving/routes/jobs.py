"""/api/jobs: start, watch, cancel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

from fastapi import APIRouter
from fastapi.sse import EventSourceResponse, ServerSentEvent

from mona_infer.serving.answers import Created, JobAnswer, JobRequest
from mona_infer.serving.jobs import ENDED, SEGMENT, SEGMENT_CASE, TRAIN, Job
from mona_infer.serving.routes.common import refuse, the_case, the_job, the_scan, told
from mona_infer.serving.site import Site

LOOK = 0.15  # seconds between looks at a job that is watched


def router(site: Site) -> APIRouter:
    api = APIRouter(prefix="/api/jobs", tags=["jobs"])

    @api.post("", status_code=202)
    def start(asked: JobRequest) -> Created:
        """Segment a scan (`scan`) or a case (`case`), or train on the data set (`ratio`, `preset`, `steps`, `seed`)."""
        with told(site):
            return Created(id=_started(site, asked).id)

    @api.get("")
    def listed() -> list[JobAnswer]:
        return [JobAnswer(**job.shown()) for job in site.jobs.all()]

    @api.get("/{id}")
    def one(id: str) -> JobAnswer:
        return JobAnswer(**the_job(site, id).shown())

    @api.delete("/{id}")
    def cancel(id: str) -> JobAnswer:
        """A running job ends as soon as its worker notices."""
        job = the_job(site, id)
        site.jobs.cancel(job)
        return JobAnswer(**job.shown())

    @api.get("/{id}/events", response_class=EventSourceResponse)
    async def events(id: str) -> AsyncIterable[ServerSentEvent]:
        """`state` with the whole job, `progress` {progress, message}, `curve` {step, dsc, loss}, until it has ended."""
        job = site.jobs.get(id)
        if job is None:
            yield ServerSentEvent(event="state", data={"state": "failed", "message": "there is no such job"})
            return
        async for name, data in _changes(site, job):
            yield ServerSentEvent(event=name, data=data)

    return api


def _started(site: Site, asked: JobRequest) -> Job:
    if asked.kind == SEGMENT:
        return site.segment(the_scan(site, asked.scan or ""), asked.model, force=asked.force)
    if asked.kind == SEGMENT_CASE:
        case = the_case(site, asked.case or "")
        site.models.model(asked.model)
        model = asked.model or site.models.current
        about = {"case": case.name, "name": case.name, "model": model, "force": asked.force}
        return site.jobs.submit(SEGMENT_CASE, about)
    return start_training(site, {name: getattr(asked, name) for name in ("ratio", "preset", "steps", "seed", "method")})


def start_training(site: Site, wishes: dict[str, Any]) -> Job:
    if site.dataset is None or not site.dataset.trains:
        refuse(409, "there is nothing to train on: start `mona serve FOLDER` with a folder that has a dataset.json")
    if not site.can_train:
        refuse(409, "the training part of mona is not installed here; `mona doctor` says how to install it")
    if not any(case.label is not None for case in site.dataset.cases().values() if not case.test):
        refuse(409, "no scan has a label yet: draw the first one, then train")
    return site.jobs.submit(TRAIN, {"name": "training", **wishes})


async def _changes(site: Site, job: Job) -> AsyncIterable[tuple[str, dict[str, Any]]]:
    state, version, points = "", -1, 0
    last: dict[str, Any] = {}
    while True:
        if job.version != version:
            version = job.version
            shown = job.shown()
            curve = shown["curve"]
            if points and curve[points - 1 : points] != [last]:  # its last point was completed, or it starts again
                points = max(0, points - 1) if len(curve) >= points else 0
            for point in curve[points:]:
                yield "curve", point
            points, last = len(curve), curve[-1] if curve else {}
            if shown["state"] != state:
                state = shown["state"]
                yield "state", shown
            else:
                yield "progress", {"progress": shown["progress"], "message": shown["message"]}
        if job.state in ENDED or site.jobs.closing:
            return
        await asyncio.sleep(LOOK)
