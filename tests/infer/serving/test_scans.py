"""Scans sent to the server: what is accepted, and masks that are those of `mona segment`, byte for byte."""

import io
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.itk_files import itk_write
from helpers.served import THICK, client_at, dicom_zip, nifti, segmented, site_at, upload, voxels_of

from mona_infer import Segmenter, read_volume
from mona_infer.serving import scans
from mona_infer.serving.scans import NoRoom
from mona_infer.serving.state import State

MONA = Path(sys.executable).with_name("mona")


def expected(model, path):
    return np.asarray(Segmenter(model, engine="cpu", threads=1)(read_volume(path)).voxels)


def test_a_mask_is_the_one_that_mona_segment_writes(client, model, tmp_path):
    (tmp_path / "scan.nii.gz").write_bytes(nifti(models.scan()))
    id, job = segmented(client, nifti(models.scan()))
    assert job["state"] == "done" and job["progress"] == 1 and job["result"]["classes"]["RV"]["voxels"] > 0
    for ending in ("nii.gz", "seg.nrrd", "nrrd"):
        answer = client.get(f"/api/scans/{id}/mask", params={"format": ending})
        out = tmp_path / f"mask.{ending}"
        command = [str(MONA), "segment", str(tmp_path / "scan.nii.gz")]
        if ending == "nii.gz":  # one process is enough: the rest is the same voxels in other formats
            subprocess.run([*command, "--out", str(out), "--model", str(model)], check=True, capture_output=True)
            assert answer.content == out.read_bytes()
        else:
            out.write_bytes(answer.content)
            assert np.array_equal(read_volume(out).voxels, voxels_of(client.get(f"/api/scans/{id}/mask").content))


@pytest.mark.parametrize("ending", ["nii", "nrrd", "mha"])
def test_other_formats(client, model, tmp_path, ending):
    path = tmp_path / f"scan.{ending}"
    if ending == "nii":
        nib.save(nib.Nifti1Image(models.scan(), THICK), path)
    else:
        itk_write(path, models.scan(), THICK, compress=True)
    id, job = segmented(client, path.read_bytes(), f"anything.{ending}")
    assert job["state"] == "done", job["message"]
    assert np.array_equal(voxels_of(client.get(f"/api/scans/{id}/mask").content), expected(model, path))
    shown = voxels_of(client.get(f"/api/scans/{id}/image").content)
    assert np.array_equal(shown, models.scan())


def test_a_zip_of_dicom(client, model, tmp_path):
    pytest.importorskip("highdicom", reason="highdicom, of the extra `dicom-seg`, is not installed")
    sent = dicom_zip(tmp_path / "series", PatientName="Mustermann^Erika")
    scan = upload(client, sent, "Mustermann_Erika.zip").json()
    assert (scan["name"], scan["shape"], scan["dicom"]) == ("scan 1", [40, 36, 5], True)
    id, job = segmented(client, sent)
    mask = voxels_of(client.get(f"/api/scans/{id}/mask").content)
    assert np.array_equal(mask, expected(model, tmp_path / "series"))
    seg = tmp_path / "seg.dcm"
    answer = client.get(f"/api/scans/{id}/mask?format=dcm")
    assert answer.status_code == 200, answer.text
    seg.write_bytes(answer.content)
    from mona_infer.geometry.align import on_grid_of

    again = on_grid_of(read_volume(seg), read_volume(tmp_path / "series"))
    assert np.array_equal(again.voxels, mask)
    assert "Mustermann" not in str(job) and "Erika" not in str(client.get("/api/jobs").json())


def test_every_frame_of_a_cine_is_segmented(client):
    frames = np.stack([models.scan(n) for n in range(3)], axis=-1)
    scan = upload(client, nifti(frames)).json()
    assert scan["shape"] == [40, 36, 5, 3]
    id, job = segmented(client, nifti(frames))
    assert voxels_of(client.get(f"/api/scans/{id}/mask").content).shape == (40, 36, 5, 3)
    assert len(job["result"]["frames"]) == 3
    refused = client.get(f"/api/scans/{id}/mask?format=seg.nrrd")
    assert refused.status_code == 422 and "frame" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello" * 400, "not a scan that mona reads"),
        (b"\x1f\x8b" + b"\0" * 500, "not a scan"),
        (nifti(models.scan())[:3000], ""),
        (b"PK\x03\x04" + b"\0" * 300, ""),
        (b"\0" * 128 + b"DICM" + b"\xff" * 400, ""),
        (b"NRRD0004\ntype: short\ndimension: 3\nsizes: 40 36 5\nencoding: raw\nendian: little\n"
         b"data file: /etc/passwd\n", "same folder"),
        (b"NRRD0004\ntype: uchar\ndimension: 3\nsizes: 4 6 5\nencoding: raw\ndata file: received\n", "same folder"),
        (b"NDims = 3\nDimSize = 4 6 5\nElementType = MET_UCHAR\nElementDataFile = ../../model.json\n", "same folder"),
    ],
)  # fmt: skip
def test_what_is_no_scan_is_refused_in_a_sentence_without_paths(client, tmp_path, content, words):
    answer = upload(client, content)
    if answer.status_code == 201:  # a good header: the voxels are found to be missing when they are read
        job = client.post("/api/jobs", json={"kind": "segment", "scan": answer.json()["id"]}).json()["id"]
        from helpers.served import ended

        done = ended(client, job)
        assert done["state"] == "failed"
        sentence = done["message"]
    else:
        assert answer.status_code == 422
        assert not list((tmp_path / "state" / "scans").iterdir())
        sentence = answer.json()["detail"]
    assert words in sentence and str(tmp_path) not in sentence and "Traceback" not in sentence
    assert not list((tmp_path / "state" / "incoming").iterdir())


def test_names_are_kept_only_when_asked(tmp_path, model):
    with client_at(tmp_path / "a", model=model, keep_names=True) as client:
        assert upload(client, nifti(models.scan()), "../../Erika M.nii.gz").json()["name"] == "Erika M.nii.gz"
    with client_at(tmp_path / "b", model=model) as client:
        id, _ = segmented(client, nifti(models.scan()), "Erika M.nii.gz")
        kept = b"".join(p.read_bytes() for p in (tmp_path / "b" / "state").rglob("*.json"))
        assert b"Erika" not in kept
        assert id.encode() in kept


def test_a_deleted_scan_is_gone(client, tmp_path):
    id, _ = segmented(client, nifti(models.scan()))
    assert client.delete(f"/api/scans/{id}").status_code == 204
    assert client.get(f"/api/scans/{id}/mask").status_code == 404
    assert client.post("/api/jobs", json={"kind": "segment", "scan": id}).status_code == 404
    assert not list((tmp_path / "state" / "scans").iterdir())


def test_scans_and_masks_survive_a_restart(tmp_path, model):
    with client_at(tmp_path, model=model) as client:
        id, _ = segmented(client, nifti(models.scan()))
        mask = client.get(f"/api/scans/{id}/mask").content
    with client_at(tmp_path, model=model) as client:
        assert [scan["id"] for scan in client.get("/api/scans").json()] == [id]
        assert client.get(f"/api/scans/{id}/mask").content == mask


def test_two_servers_do_not_share_a_state_folder(tmp_path, model, client):
    from mona_infer.errors import InputError

    with pytest.raises(InputError, match="another process is serving"), State(tmp_path / "state").only_here():
        pass


def test_a_full_disk_is_told(client, monkeypatch, tmp_path):
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    answer = upload(client, nifti(models.scan()))
    assert answer.status_code == 507 and "disk is full" in answer.json()["detail"]
    assert not list((tmp_path / "state" / "scans").iterdir())


def test_the_oldest_scans_make_way_for_new_ones(tmp_path, model, monkeypatch):
    """But none that is fresh, that a job still needs, or in which somebody has drawn."""
    content = nifti(models.scan())
    with site_at(tmp_path, model=model, storage=int(4.5 * len(content))) as site:  # without workers: jobs wait

        def send(**more):
            return site.scans.add(io.BytesIO(content), None, **more)

        sent = [send() for _ in range(4)]
        with pytest.raises(NoRoom, match=r"at most .* MB; delete .* larger --storage"):
            send()  # all are fresh
        site.segment(sent[0], None)
        site.scans.path(sent[1], "label.nii.gz").write_bytes(b"")
        monkeypatch.setattr(scans, "FRESH", -1.0)
        new = send()
        assert {scan.id for scan in site.scans} == {sent[0].id, sent[1].id, sent[3].id, new.id}
        assert {p.name for p in (tmp_path / "state" / "scans").iterdir()} == {scan.id for scan in site.scans}
        with pytest.raises(NoRoom):
            site.scans.add(io.BytesIO(bytes(5 * len(content))), None)  # would not fit alone: nothing is deleted for it
        assert len(list(site.scans)) == 4
        site.jobs.cancel(site.jobs.all()[0])
        send()
        assert sent[0].id not in {scan.id for scan in site.scans}


def test_without_room_the_answer_says_so(tmp_path, model):
    content = nifti(models.scan())
    with client_at(tmp_path, model=model, storage=len(content)) as client:
        assert client.get("/api/info").json()["limits"]["storage_bytes"] == len(content)
        assert upload(client, content).status_code == 201
        answer = upload(client, content)
        assert answer.status_code == 507 and "larger --storage" in answer.json()["detail"]


def test_openapi_describes_the_answers(client):
    described = client.get("/openapi.json").json()
    assert described["paths"]["/api/scans"]["post"]["responses"]["201"]["content"]["application/json"]["schema"]
    assert client.get("/docs").status_code == 404  # it would load scripts from another host
    assert io.BytesIO(client.get("/").content).read()
