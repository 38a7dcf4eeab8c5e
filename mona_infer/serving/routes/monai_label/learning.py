"""/activelearning/ and /train/: which scan to label next, and training."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from mona_infer.serving.jobs import ENDED, RUNNING, WAITING, Job
from mona_infer.serving.routes.common import refuse, the_job, told
from mona_infer.serving.routes.jobs import start_training
from mona_infer.serving.routes.monai_label.protocol import (
    TRAINER,
    Protocol,
)


def add_learning(api: APIRouter, protocol: Protocol) -> None:
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
