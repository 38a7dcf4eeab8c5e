"""MONAI Label's own client (the one inside 3D Slicer's plugin) against the server: its calls, its files."""

import gzip
import json
import socket
import time
import warnings

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.itk_files import itk_write
from helpers.served import THICK, ask, client_at, dataset, dicom_zip, form, labels, listening, nifti, site_at, voxels_of
from pydicom import dcmread

from mona_infer import Segmenter, read_volume
from mona_infer.serving.safety import Rules

TOKEN = "a-token-for-tests"


@pytest.fixture
def monai():
    """Their class, from their wheel; not copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cgi is deprecated
        found = pytest.importorskip(
            "monailabel.client.client",
            reason="monailabel is not installed; `make test-all` installs it without its dependencies",
        )
    return found


@pytest.fixture
def folder(tmp_path):
    return dataset(tmp_path / "data", labelled=1, unlabelled=2)


@pytest.fixture
def slicer(monai, tmp_path, model, folder):
    (tmp_path / "tmp").mkdir()
    with site_at(tmp_path, model=model, dataset=folder) as site, listening(site) as address:
        yield monai.MONAILabelClient(address, tmpdir=str(tmp_path / "tmp"), client_id="slicer")


def expected(model, path):
    return np.asarray(Segmenter(model, engine="cpu", threads=1)(read_volume(path)).voxels)


def name_of(slicer):
    return next(iter(slicer.info()["models"]))


def test_what_slicer_reads_of_info(slicer):
    info = slicer.info()
    assert "config" not in info  # with it the plugin says that the server is too old
    model = info["models"][name_of(slicer)]
    assert model["type"] == "segmentation" and model["labels"] == {"RV": 1, "Myo": 2, "LV": 3} and model["description"]
    assert info["labels"] == ["RV", "Myo", "LV"] and info["datastore"] == {"total": 3, "completed": 1}
    assert set(info["strategies"]) == {"doubtful", "random"} and not slicer.auth_enabled()
    assert slicer.train_status(check_if_running=True) is False


def test_infer_by_case_session_upload_and_file(slicer, model, folder, tmp_path):
    path = folder / "imagesTr" / "heart1_0000.nii.gz"
    mask, own = expected(model, path), str(path)
    session = slicer.create_session(own)["session_id"]
    assert slicer.get_session(session)["name"] == session
    assert slicer.upload_image(own, "Mustermann, Erika") == {"image": "Mustermann, Erika"}
    asked = {
        "case": {"image_id": "heart1"},
        "session": {"image_id": "", "session_id": session},
        "upload": {"image_id": "Mustermann, Erika"},
        "file": {"image_id": "", "file": own},
    }
    for way, which in asked.items():
        image, params = slicer.infer(name_of(slicer), params={}, **which)
        assert np.array_equal(nib.load(image).get_fdata(), mask), way  # 0 voxels different
        assert params["label_names"] == {"RV": 1, "Myo": 2, "LV": 3}
    kept = b"".join(p.read_bytes() for p in (tmp_path / "state").rglob("*.json"))
    assert b"Mustermann" not in kept
    assert slicer.remove_session(session)["name"] == session


def test_next_sample_then_a_label_and_the_next(slicer, folder):
    first = slicer.next_sample("doubtful", {})
    assert first["id"] in ("heart1", "heart2") and first["name"].endswith(".nii.gz") and "path" not in first
    second = slicer.next_sample("doubtful", {})
    assert {first["id"], second["id"]} == {"heart1", "heart2"}  # asking again gives another
    label = folder.parent / "drawn.nii.gz"
    label.write_bytes(nifti(labels(1)))
    info = [{"name": name, "idx": n} for n, name in enumerate(("RV", "Myo", "LV"), 1)]
    assert slicer.save_label("heart1", str(label), params={"label_info": info})["label"] == "heart1"
    assert np.array_equal(read_volume(folder / "labelsTr" / "heart1.nii.gz").voxels, labels(1))
    assert slicer.info()["datastore"]["completed"] == 2
    assert slicer.next_sample("random", {})["id"] == "heart2"
    shown = slicer.datastore()["objects"]
    assert shown["heart1"]["labels"].keys() == {"final"} and shown["heart2"]["labels"] == {}
    again = slicer.download_label("heart1", "final")
    assert np.array_equal(nib.load(again).get_fdata(), labels(1))
    slicer.save_label("heart2", str(label), params={"label_info": info})
    assert slicer.next_sample("doubtful", {}) == {}


def test_slicer_numbers_segments_in_its_own_order(slicer, folder):
    """Only LV and RV were drawn, in that order: they come as 1 and 2."""
    drawn = labels(2)
    sent = np.select([drawn == 3, drawn == 1], [1, 2], 0).astype(np.uint8)
    path = folder.parent / "drawn.nii.gz"
    path.write_bytes(nifti(sent))
    info = [{"name": "LV", "idx": 1}, {"name": "RV", "idx": 2}]
    slicer.save_label("heart2", str(path), params={"label_info": info})
    assert np.array_equal(read_volume(folder / "labelsTr" / "heart2.nii.gz").voxels, np.where(drawn == 2, 0, drawn))
    with pytest.raises(Exception, match="422"):
        slicer.save_label("heart2", str(path), params={"label_info": [{"name": "Spleen", "idx": 1}, info[1]]})


def test_slicer_may_save_nrrd(slicer, folder):
    path = itk_write(folder.parent / "drawn.nrrd", labels(1), THICK, compress=True)
    info = [{"name": name, "idx": n} for n, name in enumerate(("RV", "Myo", "LV"), 1)]
    slicer.save_label("heart1", str(path), params={"label_info": info})
    assert np.array_equal(read_volume(folder / "labelsTr" / "heart1.nii.gz").voxels, labels(1))


def test_a_token_is_slicers_password(monai, tmp_path, model):
    with site_at(tmp_path, model=model) as site, listening(site, Rules(token=TOKEN)) as address:
        slicer = monai.MONAILabelClient(address)
        assert slicer.auth_enabled()
        with pytest.raises(monai.MONAILabelClientException):
            slicer.info()
        with pytest.raises(monai.MONAILabelClientException):
            slicer.auth_token("anyone", "wrong")
        slicer.update_auth(slicer.auth_token("anyone", TOKEN))
        assert slicer.auth_valid_token() and slicer.info()["models"]


def test_what_ohif_asks_for(tmp_path, model, folder):
    """Its calls by hand: it is JavaScript.  output=image, and an uncompressed NRRD of bytes in the scan's order."""
    params = {"result_extension": ".nrrd", "result_dtype": "uint8", "result_compress": False}
    with client_at(tmp_path, model=model, dataset=folder) as client:
        name = next(iter(client.get("/info/").json()["models"]))
        answer = client.post(f"/infer/{name}?image=heart1&output=image", files={"params": (None, json.dumps(params))})
        assert answer.status_code == 200, answer.text
        header, _, voxels = answer.content.partition(b"\n\n")
        assert b"encoding: raw" in header and b"type: unsigned char" in header
        mask = expected(model, folder / "imagesTr" / "heart1_0000.nii.gz")
        assert voxels == mask.tobytes(order="F")
        info = [{"name": name, "idx": n} for n, name in ((1, "RV"), (2, "Myo"), (3, "LV"))]
        sent = {"params": (None, json.dumps({"label_info": info})), "label": ("label.bin", voxels)}
        assert client.put("/datastore/label?image=heart1", files=sent).status_code == 200
        assert np.array_equal(voxels_of(client.get("/api/cases/heart1/label").content), mask)
        sent["label"] = ("label.bin", voxels[:-1])
        assert client.put("/datastore/label?image=heart1", files=sent).status_code == 422


def test_ohif_finds_an_uploaded_series_by_its_uid(tmp_path, model):
    packed = dicom_zip(tmp_path / "series")
    uid = str(dcmread(next((tmp_path / "series").iterdir())).SeriesInstanceUID)
    with client_at(tmp_path, model=model) as client:
        client.post("/api/scans", files={"file": ("x.zip", packed)})
        name = next(iter(client.get("/info/").json()["models"]))
        answer = client.post(f"/infer/{name}?image={uid}&output=image", files={"params": (None, "{}")})
        assert gzip.decompress(answer.content)[344:347] == b"n+1"
        assert client.post(f"/infer/{name}?image=1.2.3&output=image", files={"params": (None, "{}")}).status_code == 404


def test_a_client_that_goes_away_cancels_its_job(tmp_path, model):
    with site_at(tmp_path, model=model) as site, listening(site) as address:
        body, kind = form(nifti(models.scan()))
        assert ask(f"{address}/datastore/?image=x", "PUT", body, **kind) == {"image": "x"}
        site.models.segmenter = _slowly  # the worker is busy for a while
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as to:
            to.sendall(f"POST /infer/{site.models.current}?image=x HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(0.4)
        until = time.monotonic() + 20
        while not (found := site.jobs.all()) or found[0].state != "cancelled":
            assert time.monotonic() < until, found
            time.sleep(0.05)


def _slowly(model):
    time.sleep(1.5)
    return Segmenter(model, engine="cpu", threads=1)
