"""Scans from a store through the pipeline: in order, one bad scan beside good ones, nothing left on this disk."""

import tempfile

import nibabel as nib
import numpy as np
import pytest
from helpers import models

from mona_infer.cohort import staged
from mona_infer.cohort.remote import find_jobs, without_mask
from mona_infer.cohort.settings import Settings
from mona_infer.cohort.task import in_order
from mona_infer.errors import InputError
from mona_infer.io.remote import fetch, names_in
from mona_infer.models.file import read_model
from mona_infer.segmenter import Segmenter
from mona_infer.segmenting import pipeline
from mona_infer.segmenting.jobs import Job
from mona_infer.segmenting.outputs import Options

OPTIONS = Options(None, False, None, False, None, False, False)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Four scans on memory://; b vanishes after it was listed, and c is no scan."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.store.clear()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    for n, name in enumerate("abcd"):
        path = tmp_path / f"{name}.nii.gz"
        nib.save(nib.Nifti1Image(models.scan(n), np.diag([1.5, 1.5, 8.0, 1.0])), path)
        memory.pipe_file(f"/scans/{name}.nii.gz", path.read_bytes() if name != "c" else b"no scan")
    yield tmp_path, memory
    memory.store.clear()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return read_model(models.write(tmp_path_factory.mktemp("model") / "model.onnx"))


def test_reports_come_in_order_and_a_scan_that_vanished_is_one_of_them(shelf, model):
    here, memory = shelf
    jobs, many = find_jobs("memory://scans", "memory://masks")
    memory.rm_file("/scans/b.nii.gz")

    def made():
        return Segmenter(model)

    reports = [report for report, _ in staged.run(jobs, model, OPTIONS, made, folder=many)]
    assert [(r.case, r.scan, r.mask) for r in reports] == [
        ("a", "memory://scans/a.nii.gz", "memory://masks/a.nii.gz"),
        ("b", "memory://scans/b.nii.gz", None),
        ("c", "memory://scans/c.nii.gz", None),
        ("d", "memory://scans/d.nii.gz", "memory://masks/d.nii.gz"),
    ]
    assert reports[1].error == "memory://scans/b.nii.gz does not exist"
    assert reports[2].error.startswith("memory://scans/c.nii.gz") and "scratch" not in reports[2].error
    assert names_in("memory://masks") == {"a.nii.gz", "d.nii.gz"}
    assert not list((here / "scratch").iterdir())
    local = Job("d", here / "d.nii.gz", here / "mask.nii.gz")
    assert [r.error for r, _ in pipeline.run([local], model, OPTIONS, made, folder=True)] == [None]
    assert fetch("memory://masks/d.nii.gz", here / "back").read_bytes() == local.out.read_bytes()


def test_a_single_scan_fails_in_words_of_its_place(shelf, model):
    here, _ = shelf
    jobs, many = find_jobs("memory://scans/c.nii.gz", str(here / "mask.nii.gz"))
    with pytest.raises(InputError) as told:
        list(staged.run(jobs, model, OPTIONS, lambda: Segmenter(model), folder=many))
    assert str(told.value).startswith("memory://scans/c.nii.gz") and "scratch" not in str(told.value)
    assert not list((here / "scratch").iterdir())


def test_what_has_a_mask_is_left(shelf, model):
    """By one listing for the command; by a look at each scan for a worker that comes after a lost one."""
    here, memory = shelf
    nib.save(nib.Nifti1Image(np.zeros((40, 36, 5), np.uint8), np.eye(4)), here / "mask.nii.gz")
    memory.pipe_file("/masks/a.nii.gz", (here / "mask.nii.gz").read_bytes())
    memory.pipe_file("/masks/b.nii.gz", memory.cat_file("/scans/b.nii.gz"))  # a file that is no mask
    jobs, _ = find_jobs("memory://scans", "memory://masks")
    assert [job.name for job in without_mask(jobs, "memory://masks")] == ["c", "d"]
    settings = Settings(model, "auto", OPTIONS, {})
    reports = list(in_order(settings, [jobs[0], jobs[1], jobs[3]], lambda: Segmenter(model), lambda: False))
    assert [(r.case, r.mask, bool(r.warnings)) for r in reports] == [
        ("a", "memory://masks/a.nii.gz", True),
        ("b", None, False),
        ("d", "memory://masks/d.nii.gz", False),
    ]


def test_names_that_would_lead_out_have_harmless_masks(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("s3://b/x/a.nii\ns3://b/x/../e.nii\ns3://b/x//f.nii\n")
    jobs, _ = find_jobs(str(listed), str(tmp_path / "masks"))
    assert {(job.name, job.source) for job in jobs} == {
        ("a", "s3://b/x/a.nii"),
        ("__/e", "s3://b/x/../e.nii"),
        ("f", "s3://b/x//f.nii"),
    }
    assert all(job.out.resolve().is_relative_to(tmp_path / "masks") for job in jobs)
