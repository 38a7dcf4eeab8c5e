"""/api/cases: the data set's scans, their labels and predictions, and corrections."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from mona_infer.io.read import read_volume
from mona_infer.serving.answers import CaseAnswer, Saved
from mona_infer.serving.dataset import Case
from mona_infer.serving.predictions import Candidate
from mona_infer.serving.received import suffix_of
from mona_infer.serving.routes.common import file_answer, passing_file, refuse, the_case, told
from mona_infer.serving.site import Site


def router(site: Site) -> APIRouter:
    api = APIRouter(prefix="/api/cases", tags=["cases"])

    @api.get("")
    def listed() -> list[CaseAnswer]:
        """Every case, the one to look at next first."""
        with told(site):
            return [answer(candidate) for candidate in site.ordered()]

    @api.get("/{name}")
    def one(name: str) -> CaseAnswer:
        case = the_case(site, name)
        with told(site):
            return next(answer(candidate) for candidate in site.ordered() if candidate.case.name == case.name)

    @api.get("/{name}/image")
    def image(name: str) -> Response:
        """The scan as .nii.gz."""
        case = the_case(site, name)
        with told(site, {str(case.image): case.name}):
            return file_answer(site.case_image(case), "image.nii.gz")

    @api.get("/{name}/label")
    def label(name: str) -> Response:
        """The label on the scan's own grid, as .nii.gz."""
        case = the_case(site, name)
        if case.label is None:
            refuse(404, "this case has no label yet")
        path = passing_file(site, ".nii.gz")
        with told(site, {str(case.image): case.name, str(case.label): f"the label of {case.name}"}):
            site.case_label(case, path)
        return file_answer(path, "label.nii.gz", once=True)

    @api.get("/{name}/prediction")
    def prediction(name: str, model: str | None = None) -> Response:
        """What the model in use, or `model`, predicted, as .nii.gz."""
        case = the_case(site, name)
        with told(site):
            found = site.prediction(case, model)
        if found is None or not found.mask.exists():
            refuse(404, "this case has no prediction by this model yet")
        return file_answer(found.mask, "prediction.nii.gz")

    @api.get("/{name}/thumbnail.png")
    def thumbnail(name: str) -> Response:
        case = the_case(site, name)
        with told(site, {str(case.image): case.name}):
            return file_answer(site.thumbnail(case), "thumbnail.png")

    @api.put("/{name}/label")
    async def save(name: str, request: Request) -> Saved:
        """Save a label: the body is a NIfTI file, gzip or not, on the scan's own grid.  The old label is kept."""
        case = await run_in_threadpool(the_case, site, name)
        sent = passing_file(site, "")
        try:
            with sent.open("wb") as file:
                async for chunk in request.stream():
                    await run_in_threadpool(file.write, chunk)
            return await run_in_threadpool(saved, site, case, sent)
        finally:
            sent.unlink(missing_ok=True)

    return api


def saved(site: Site, case: Case, sent: Path) -> Saved:
    """Check a label that was received, and save it."""
    assert site.dataset is not None
    with told(site, {str(case.image): "the scan", str(case.label): f"the label of {case.name}"}):
        path = sent.with_name(f"{sent.name}{suffix_of(sent)}")
        if not path.name.endswith((".nii", ".nii.gz", ".nrrd")):
            refuse(422, "expected a label as a NIfTI file (.nii or .nii.gz)")
    sent.rename(path)
    try:
        with told(site, {str(path): "the label", str(case.image): "the scan"}):
            label = read_volume(path)
            changed = site.dataset.save_label(case, label, {c.id for c in site.classes()})
            now = site.dataset.cases()[case.name]
            return Saved(saved=changed, scores=site.scores(now))
    finally:
        path.unlink(missing_ok=True)


def answer(candidate: Candidate) -> CaseAnswer:
    case, found = candidate.case, candidate.prediction
    volumes = found.report.get("classes") if found is not None else None
    return CaseAnswer(
        name=case.name,
        patient=case.patient,
        labelled=candidate.labelled,  # type: ignore[arg-type]
        predicted=found is not None,
        doubt=found.doubt if found is not None else None,
        warnings=found.warnings if found is not None else [],
        thumbnail=f"/api/cases/{quote(case.name, safe='')}/thumbnail.png",
        scores=found.scores if found is not None else None,
        volumes={name: entry["ml"] for name, entry in volumes.items()} if volumes else None,
        test=case.test,
    )
