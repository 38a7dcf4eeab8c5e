"""Which model the server segments with, and which can be chosen: given, trained, or come with mona."""

import json

import pytest
from helpers import models
from helpers.bundles import stand_ins
from helpers.served import client_at, dataset

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
