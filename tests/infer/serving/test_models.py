"""Which model the server segments with, and which can be chosen: given, trained, or come with mona."""

import json

import numpy as np
import pytest
from helpers import models
from helpers.bundles import stand_ins
from helpers.served import client_at, dataset, ended, nifti, segmented

from mona_infer.errors import InputError


def info(client):
    return client.get("/api/info").json()


def test_a_model_that_came_with_mona_is_used_until_there_is_a_better_reason(tmp_path, model):
    with stand_ins(tmp_path / "bundled"):
        with client_at(tmp_path) as client:
            assert info(client)["model"]["name"] == "all" and info(client)["models"] == ["all", "few"]
            assert info(client)["model"]["licence"] == "CC-BY-NC-SA-4.0"  # its card's
            assert client.post("/api/model", json={"name": "few"}).json()["name"] == "few"
        with client_at(tmp_path, model=model) as client:
            assert info(client)["model"]["name"] == "bands"


@pytest.mark.parametrize("same", [True, False])
def test_a_model_that_nobody_chose_must_be_one_for_the_data_sets_classes(tmp_path, same):
    folder = dataset(tmp_path / "data")
    if not same:
        about = json.loads((folder / "dataset.json").read_text())
        about["labels"] = {"background": 0, "anterior": 1, "posterior": 2}
        (folder / "dataset.json").write_text(json.dumps(about))
    with stand_ins(tmp_path / "bundled"), client_at(tmp_path, dataset=folder) as client:
        assert (info(client)["model"] is not None) is same
        job = client.post("/api/jobs", json={"kind": "segment-case", "case": "heart0"})
        assert job.status_code == (202 if same else 422)


def test_a_scan_of_another_kind_is_refused_and_can_be_forced(tmp_path):
    """In words of the page: the command's options are none of its own."""
    brain = nifti(models.scan(0, (60, 70, 30)), np.eye(4))
    with stand_ins(tmp_path / "bundled"), client_at(tmp_path) as client:
        id, job = segmented(client, brain)
        assert job["state"] == "failed" and job["refused"] is True
        assert (
            job["message"].endswith("with pixels of 1 x 1 mm)") and "scan 1 is not a stack of bands" in job["message"]
        )
        ok = segmented(client, nifti(models.scan()))[1]
        assert ok["state"] == "done" and ok["refused"] is False
        forced = client.post("/api/jobs", json={"kind": "segment", "scan": id, "force": True}).json()["id"]
        assert ended(client, forced)["state"] == "done"
        again = client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"]
        assert ended(client, again)["state"] == "failed"  # nothing remembers that it was forced once


def test_a_class_has_one_colour_on_all_pages(tmp_path, model):
    with client_at(tmp_path, model=model, dataset=dataset(tmp_path / "data")) as client:
        found = info(client)
        colours = [{c["name"]: c["color"] for c in found[what]["classes"]} for what in ("model", "dataset")]
        assert colours[0] == colours[1] and len(set(colours[0].values())) == 4


def test_names_can_be_sent_by_slicers_plugin(tmp_path):
    """Its client writes a blank of a path as +, which no server turns back."""
    (tmp_path / "runs" / "my run").mkdir(parents=True)
    models.write(tmp_path / "runs" / "my run" / "model.onnx")
    models.write(tmp_path / "runs" / "my run" / "model-fp16.onnx")
    with client_at(tmp_path) as client:
        assert set(info(client)["models"]) == {"my_run", "my_run.fp16"}
        assert client.post("/api/model", json={"run": "my run"}).status_code == 200


def test_a_damaged_model_is_refused_and_the_one_in_use_stays(tmp_path, model):
    (tmp_path / "runs" / "bad").mkdir(parents=True)
    (tmp_path / "runs" / "bad" / "model.onnx").write_bytes(model.read_bytes()[:-9] + b"123456789")
    with client_at(tmp_path, model=model) as client:
        answer = client.post("/api/model", json={"run": "bad"})
        assert answer.status_code == 422 and "does not match its seal" in answer.json()["detail"]
        assert str(tmp_path) not in answer.json()["detail"] and info(client)["model"]["name"] == "bands"
    with pytest.raises(InputError, match="does not exist"), client_at(tmp_path / "b", model=tmp_path / "no.onnx"):
        pass
