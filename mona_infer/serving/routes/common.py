"""What the routes share: finding what a request names, and sending files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from fastapi import HTTPException
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from mona_infer.errors import MonaError
from mona_infer.serving.dataset import Case
from mona_infer.serving.jobs import Job, QueueFull
from mona_infer.serving.names import without_paths
from mona_infer.serving.scans import NoRoom, Scan
from mona_infer.serving.site import Site
from mona_infer.serving.state import new_id

TYPES = {
    ".nii.gz": "application/gzip",
    ".nrrd": "application/octet-stream",
    ".dcm": "application/dicom",
    ".png": "image/png",
}


def refuse(status: int, sentence: str) -> NoReturn:
    raise HTTPException(status, sentence)


@contextmanager
def told(site: Site, called: dict[str, str] | None = None) -> Iterator[None]:
    """What a user can put right is answered with 422 and a sentence that names no path of this machine."""
    places = {str(site.state.folder): "the server's folder", str(site.options.runs.resolve()): "runs"}
    if site.dataset is not None:
        places |= {str(site.dataset.folder): "the data set", str(site.dataset.folder.resolve()): "the data set"}
    try:
        yield
    except QueueFull:
        refuse(429, "too many jobs are waiting; try again when some are done")
    except MonaError as error:
        refuse(507 if isinstance(error, NoRoom) else 422, without_paths(str(error), {**places, **(called or {})}))


def the_scan(site: Site, id: str) -> Scan:
    return site.scans.get(id) or refuse(404, "there is no such scan on the server; it may have been deleted")


def the_job(site: Site, id: str) -> Job:
    return site.jobs.get(id) or refuse(404, "there is no such job")


def the_case(site: Site, name: str) -> Case:
    if site.dataset is None:
        refuse(404, "no data set is open; start `mona serve FOLDER`")
    with told(site):
        cases = site.dataset.cases()
    return cases.get(name) or refuse(404, "there is no such case in the data set")


def file_answer(path: Path, name: str, *, once: bool = False) -> FileResponse:
    """A file under a name that the server made; `once` removes it after it was sent."""
    kind = next((kind for end, kind in TYPES.items() if name.endswith(end)), "application/octet-stream")
    return FileResponse(
        path, media_type=kind, filename=name, background=BackgroundTask(path.unlink, missing_ok=True) if once else None
    )


def passing_file(site: Site, ending: str) -> Path:
    """A place for a file that is only made to be sent."""
    return site.state.incoming / f"{new_id()}{ending}"
