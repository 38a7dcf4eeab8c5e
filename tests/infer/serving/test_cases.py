"""The data set behind the page: its cases in order, and corrections on the scan's own grid, to the voxel."""

import hashlib
import json

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.orientations import TURNS, restored
from helpers.served import THICK, client_at, dataset, dicom_zip, ended, labels, nifti, voxels_of

from mona_infer import read_volume
from mona_infer.io.dataset_folder import read_about, training_scans

FULL = pytest.mark.full


def put(client, name, voxels, affine=THICK, plain=False):
    content = nib.Nifti1Image(voxels, affine).to_bytes() if plain else nifti(voxels, affine)
    return client.put(f"/api/cases/{name}/label", content=content)


@pytest.fixture
def folder(tmp_path):
    return dataset(tmp_path / "data")


@pytest.fixture
def client(tmp_path, model, folder):
    with client_at(tmp_path, model=model, dataset=folder) as made:
        yield made


def predict(client, name, **more):
    job = client.post("/api/jobs", json={"kind": "segment-case", "case": name, **more}).json()["id"]
    return ended(client, job)


def entry(client, name):
    return next(case for case in client.get("/api/cases").json() if case["name"] == name)


def test_unlabelled_and_doubtful_cases_come_first(client):
    for name in ("heart2", "heart4", "heart0"):
        assert predict(client, name)["state"] == "done"
    found = client.get("/api/cases").json()
    assert {case["name"] for case in found[:2]} == {"heart2", "heart4"} and found[2]["name"] == "heart3"
    assert found[0]["doubt"] >= found[1]["doubt"] > 0 and [case["labelled"] for case in found[3:]] == ["given"] * 2
    assert found[0]["volumes"]["LV"] > 0 and found[0]["scores"] is None


def test_a_prediction_is_scored_against_the_label_as_it_is_now(client, model, folder):
    result = predict(client, "heart0")["result"]
    mask = voxels_of(client.get("/api/cases/heart0/prediction").content)
    assert (
        0 < result["scores"]["LV"]["dsc"] < 1
        and entry(client, "heart0")["scores"]["LV"] == result["scores"]["LV"]["dsc"]
    )
    saved = put(client, "heart0", mask).json()
    assert saved == {"saved": True, "scores": {"RV": 1.0, "Myo": 1.0, "LV": 1.0}}
    assert entry(client, "heart0")["scores"]["RV"] == 1.0 and entry(client, "heart0")["labelled"] == "corrected"


def test_the_old_label_is_kept_and_training_reads_the_new_one(client, folder):
    path = folder / "labelsTr" / "heart1.nii.gz"
    before = path.read_bytes()
    drawn = np.roll(labels(1), 1, axis=0)
    assert put(client, "heart1", drawn).json()["saved"] is True
    assert put(client, "heart1", drawn).json()["saved"] is False  # the same again: nothing is written
    assert put(client, "heart1", np.roll(drawn, 1, axis=1)).json()["saved"] is True
    kept = sorted(p.name for p in (folder / "labels-before").iterdir())
    assert kept == ["heart1.1.nii.gz", "heart1.2.nii.gz", "saved.json"]
    assert (folder / "labels-before" / "heart1.1.nii.gz").read_bytes() == before
    said = json.loads((folder / "labels-before" / "saved.json").read_text())["heart1"]
    assert said["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    scans = training_scans(folder, read_about(folder))
    assert scans["heart1"][1] == path
    assert np.array_equal(read_volume(path).voxels, np.roll(drawn, 1, axis=1))


def test_an_unlabelled_scan_gets_a_label(client, folder):
    assert entry(client, "heart3")["labelled"] == "none"
    assert client.get("/api/cases/heart3/label").status_code == 404
    assert put(client, "heart3", labels(3), plain=True).json()["saved"] is True
    assert entry(client, "heart3")["labelled"] == "corrected"
    assert training_scans(folder, read_about(folder))["heart3"][1] == folder / "labelsTr" / "heart3.nii.gz"
    assert np.array_equal(voxels_of(client.get("/api/cases/heart3/label").content), labels(3))
    from mona_train.data.adapters import recognise

    cases = {case.name: case for case in recognise(folder).cases(folder)}
    assert np.array_equal(cases["heart3"].label().voxels, labels(3))


@pytest.mark.parametrize("turn", [*TURNS[::11], *(pytest.param(t, marks=FULL) for n, t in enumerate(TURNS) if n % 11)])
def test_a_correction_lies_on_its_scan_in_any_order(tmp_path, model, turn):
    """The scan is stored in one of 48 ways; the label is sent in the scan's order, and in the plain one."""
    folder = dataset(tmp_path / "data", labelled=0, unlabelled=1)
    scan, affine = restored(models.scan(0), THICK, *turn)
    drawn, _ = restored(labels(0), THICK, *turn)
    image = folder / "imagesTr" / "heart0_0000.nii.gz"
    nib.save(nib.Nifti1Image(scan, affine), image)
    with client_at(tmp_path, model=model, dataset=folder) as client:
        for voxels, grid in ((drawn, affine), (np.roll(labels(0), 1, axis=1), THICK)):
            assert put(client, "heart0", voxels, grid).json()["saved"] is True
            saved, shown = nib.load(folder / "labelsTr" / "heart0.nii.gz"), nib.load(image)
            assert np.array_equal(saved.affine, shown.affine) and saved.shape == shown.shape
            expected = drawn if grid is affine else restored(voxels, THICK, *turn)[0]
            assert np.array_equal(np.asarray(saved.dataobj), expected)


def test_labels_that_do_not_fit_are_refused_and_nothing_changes(client, folder, tmp_path):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    shifted = THICK.copy()
    shifted[0, 3] = 3
    for answer, words in (
        (put(client, "heart0", labels(0)[:, :, :4]), "not on the same grid"),
        (put(client, "heart0", labels(0), shifted), "not on the same grid"),
        (put(client, "heart0", labels(0) + 7), "contains id"),
        (put(client, "heart0", labels(0).astype(np.float32) + 0.5), "not a label map"),
        (client.put("/api/cases/heart0/label", content=b"no scan"), "not a scan"),
        (client.put("/api/cases/heart0/label", content=b""), "empty"),
        (client.put("/api/cases/heart0/label", content=nifti(labels(0))[:800]), ""),
    ):
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"] and str(tmp_path) not in answer.json()["detail"]
    assert put(client, "nobody", labels(0)).status_code == 404
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not list((tmp_path / "state" / "incoming").iterdir())


def test_images_and_pictures(client):
    assert np.array_equal(voxels_of(client.get("/api/cases/heart0/image").content), models.scan(0))
    for name in ("heart0", "heart4"):
        picture = client.get(f"/api/cases/{name}/thumbnail.png")
        assert picture.headers["content-type"] == "image/png" and picture.content[:4] == b"\x89PNG"
    assert client.get("/api/cases/heart4/prediction").status_code == 404
    for what in ("image", "label", "prediction", "thumbnail.png"):
        assert client.get(f"/api/cases/..%2f..%2fetc/{what}").status_code == 404


def test_another_model_predicts_beside_the_one_in_use(tmp_path, folder, model):
    run = tmp_path / "runs" / "later"
    run.mkdir(parents=True)
    models.write(run / "model.onnx", licence="another")
    with client_at(tmp_path, model=model, dataset=folder) as client:
        first = client.get("/api/info").json()["model"]["name"]
        assert set(client.get("/api/info").json()["models"]) == {first, "later"}
        assert predict(client, "heart2", model="later")["state"] == "done"
        assert client.get("/api/cases/heart2/prediction").status_code == 404  # of the model in use
        assert client.get("/api/cases/heart2/prediction?model=later").status_code == 200
        assert client.post("/api/model", json={"run": "later"}).json()["licence"] == "another"
        assert entry(client, "heart2")["predicted"] is True
        assert client.post("/api/model", json={"name": "../later"}).status_code == 422
    with client_at(tmp_path, dataset=folder) as client:  # the choice is remembered
        assert client.get("/api/info").json()["model"]["name"] == "later"


def test_a_folder_of_scans_without_a_dataset_json(tmp_path, model):
    """DICOM and ACDC's references beside the scans; corrections go beside the folder, and no scan is touched."""
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "a.nii.gz").write_bytes(nifti(models.scan(0)))
    (folder / "a_gt.nii.gz").write_bytes(nifti(labels(0)))
    (folder / "Mustermann_Erika.zip").write_bytes(dicom_zip(tmp_path / "series", seed=3))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with client_at(tmp_path, model=model, dataset=folder) as client:
        found = {case["name"]: case for case in client.get("/api/cases").json()}
        (hidden,) = set(found) - {"a"}
        assert hidden.startswith("dicom-") and "Mustermann" not in json.dumps(found)
        assert (found["a"]["labelled"], found[hidden]["labelled"]) == ("given", "none")
        assert predict(client, hidden)["state"] == "done"
        mask = voxels_of(client.get(f"/api/cases/{hidden}/prediction").content)
        image = voxels_of(client.get(f"/api/cases/{hidden}/image").content)
        assert np.array_equal(image, models.scan(3))
        assert client.put(f"/api/cases/{hidden}/label", content=nifti(mask)).json()["saved"] is True
        assert put(client, "a", np.roll(labels(0), 1, axis=0)).json()["saved"] is True
        assert entry(client, "a")["labelled"] == "corrected"
        assert client.post("/api/jobs", json={"kind": "train"}).status_code == 409
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    saved = read_volume(tmp_path / "scans-labels" / f"{hidden}.nii.gz")
    scan = read_volume(folder / "Mustermann_Erika.zip")
    assert np.array_equal(saved.voxels, mask) and np.allclose(saved.affine, scan.affine, atol=1e-4)
    assert sorted(p.name for p in (tmp_path / "scans-labels-before").iterdir()) == ["a.1.nii.gz", "saved.json"]


def test_the_order_can_be_another(tmp_path, model, folder):
    from helpers.served import site_at

    with site_at(tmp_path, model=model, dataset=folder) as site:
        site.order = lambda candidates: sorted(candidates, key=lambda c: c.case.name, reverse=True)
        assert [c.case.name for c in site.ordered()] == [f"heart{n}" for n in (4, 3, 2, 1, 0)]


def test_a_damaged_label_does_not_keep_its_case_from_being_segmented(client, folder):
    (folder / "labelsTr" / "heart0.nii.gz").write_bytes(nifti(labels(0)[:, :, :3]))
    job = predict(client, "heart0")
    assert job["state"] == "done" and "could not be compared" in job["result"]["warnings"][-1]
    assert put(client, "heart0", labels(0)).json()["saved"] is True  # and can be replaced
