"""/api/scans: upload, look, fetch the mask, delete."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response, UploadFile

from mona_infer.serving.answers import ScanAnswer
from mona_infer.serving.jobs import ENDED, in_words
from mona_infer.serving.routes.common import file_answer, passing_file, refuse, the_scan, told
from mona_infer.serving.scans import MASK, Scan
from mona_infer.serving.site import Site


def router(site: Site) -> APIRouter:
    api = APIRouter(prefix="/api/scans", tags=["scans"])

    @api.post("", status_code=201)
    def upload(file: UploadFile) -> ScanAnswer:
        """Send a scan: NIfTI, NRRD, MetaImage, DICOM or a zip of a DICOM series."""
        with told(site):
            return answer(site.scans.add(file.file, file.filename))

    @api.get("")
    def listed() -> list[ScanAnswer]:
        return [answer(scan) for scan in site.scans]

    @api.get("/{id}")
    def one(id: str) -> ScanAnswer:
        return answer(the_scan(site, id))

    @api.get("/{id}/image")
    def image(id: str) -> Response:
        """The scan as .nii.gz."""
        scan = the_scan(site, id)
        with told(site, site.scans.stands_for(site.scans.path(scan), scan.name)):
            return file_answer(site.scans.image(scan), f"{scan.id}.nii.gz")

    @api.get("/{id}/mask")
    def mask(id: str, format: Literal["nii.gz", "seg.nrrd", "nrrd", "dcm"] = "nii.gz") -> Response:
        """The mask, on the scan's own grid."""
        scan = the_scan(site, id)
        if not scan.segmented or not site.scans.path(scan, MASK).exists():
            refuse(404, "this scan is not segmented yet")
        if format == "nii.gz":
            return file_answer(site.scans.path(scan, MASK), f"{scan.id}-mask.nii.gz")
        path = passing_file(site, f".{format}")
        with told(site, {**site.scans.stands_for(site.scans.path(scan), scan.name), path.name: "the mask"}):
            site.write_mask(scan, path)
        return file_answer(path, f"{scan.id}-mask.{format}", once=True)

    @api.delete("/{id}", status_code=204)
    def delete(id: str) -> None:
        """Delete a scan, its mask, and the jobs that would segment it."""
        scan = the_scan(site, id)
        for job in site.jobs.all():
            if job.about.get("scan") == scan.id and job.state not in ENDED:
                site.jobs.cancel(job)
        site.scans.remove(scan)

    return api


def answer(scan: Scan) -> ScanAnswer:
    return ScanAnswer(
        id=scan.id,
        name=scan.name,
        shape=scan.shape,
        spacing=scan.spacing,
        dicom=scan.dicom,
        created=str(in_words(scan.created)),
        segmented=scan.segmented,
    )
