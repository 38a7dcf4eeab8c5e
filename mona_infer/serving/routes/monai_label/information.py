"""/info/: what a client shows of the server."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from mona_infer import __version__
from mona_infer.serving.jobs import Job
from mona_infer.serving.routes.common import told
from mona_infer.serving.routes.monai_label.protocol import (
    STRATEGIES,
    TRAINER,
    Protocol,
    counts_of,
    numbers_of,
)
from mona_infer.serving.site import Site


def add_information(api: APIRouter, protocol: Protocol) -> None:
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
            "datastore": counts_of(site),
        }


def _model(site: Site, name: str) -> dict[str, Any]:
    task = site.models.model(name).task
    labels = {c.name: number for c, number in numbers_of(task.classes).items() if c.id}
    return {"type": "segmentation", "labels": labels, "dimension": 3, "description": task.name, "config": {}}


def _statistics(job: Job) -> dict[str, Any]:
    best = max((p["dsc"] for p in job.points if p.get("dsc") is not None), default=0.0)
    spent = {"total_time": job.ended - (job.started or job.created)} if job.ended is not None else {}
    return {"epoch": max(1, round(100 * job.progress)), "total_epochs": 100, "best_metric": best, **spent}
