"""/datastore/: images and labels, fetched and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Response, UploadFile

from mona_infer.geometry.align import on_grid_of
from mona_infer.io.nifti import write_mask
from mona_infer.io.read import label_ids
from mona_infer.serving.dataset import Case
from mona_infer.serving.labels_sent import read_sent, with_our_ids
from mona_infer.serving.routes.common import file_answer, passing_file, refuse, told
from mona_infer.serving.routes.monai_label.protocol import (
    Protocol,
    counts_of,
    parsed,
)
from mona_infer.serving.scans import LABEL, MASK, Scan, copy
from mona_infer.serving.site import Site


def add_datastore(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.get("/datastore/")
    def datastore(output: Literal["all", "train", "stats"] | None = None) -> Any:
        if output == "all":
            return {"name": "mona", "description": "", "objects": _objects(protocol)}
        if output == "train":
            return [{"image": name, "label": name} for name, entry in _objects(protocol).items() if entry["labels"]]
        return counts_of(site)

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
        asked = parsed(params)
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
