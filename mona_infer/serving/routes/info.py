"""/api/info, /api/runs and /api/model: what this server is, what was trained, which model segments."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, replace

from fastapi import APIRouter

from mona_infer import __version__
from mona_infer.serving.answers import (
    ClassAnswer,
    DatasetAnswer,
    Info,
    Limits,
    ModelAnswer,
    ModelChoice,
    RunAnswer,
)
from mona_infer.serving.models import classes_shown
from mona_infer.serving.routes.common import refuse, told
from mona_infer.serving.site import Site


def router(site: Site, upload_bytes: int) -> APIRouter:
    api = APIRouter(prefix="/api", tags=["server"])

    @api.get("/info")
    def info() -> Info:
        with told(site):
            current = site.models.current
            model = described(site, current) if current is not None else None
            return Info(
                version=__version__,
                model=model,
                models=list(site.models.paths()),
                dataset=_dataset(site),
                training=site.can_train,
                limits=Limits(upload_bytes=upload_bytes, storage_bytes=site.options.storage),
                dicom_seg=importlib.util.find_spec("highdicom") is not None,
            )

    @api.get("/runs")
    def runs() -> list[RunAnswer]:
        """The runs of this data set, oldest first."""
        with told(site):
            return [RunAnswer(**asdict(run)) for run in site.runs.all()]

    @api.post("/model")
    def use(choice: ModelChoice) -> ModelAnswer:
        """Switch to another model, by its name or by its run's."""
        name = choice.name or choice.run or refuse(422, "give the name of a model, or of a run")
        with told(site):
            site.models.use(name)
            return described(site, name)

    return api


def described(site: Site, name: str) -> ModelAnswer:
    """A class has the same colour on every page: that of the data set, where it has a class of that name."""
    model = site.models.model(name)
    known = {c.name.lower(): c.colour for c in (site.dataset.classes if site.dataset else None) or ()}
    classes = [replace(c, colour=known.get(c.name.lower(), c.colour)) for c in model.task.classes]
    licence = model.card.licence if model.card is not None else model.facts.get("licence")
    return ModelAnswer(
        name=name,
        task=model.task.name,
        classes=[ClassAnswer(**entry) for entry in classes_shown(classes)],
        licence=licence if isinstance(licence, str) else None,
        modality=model.task.modality,
        precision=model.precision,
    )


def _dataset(site: Site) -> DatasetAnswer | None:
    if site.dataset is None:
        return None
    cases = site.dataset.cases().values()
    classes = site.dataset.classes or (site.models.model().task.classes if site.models.current else ())
    return DatasetAnswer(
        name=site.dataset.name,
        cases=len(cases),
        labelled=sum(case.label is not None for case in cases),
        classes=[ClassAnswer(**entry) for entry in classes_shown(classes)],
        trains=site.dataset.trains,
    )
