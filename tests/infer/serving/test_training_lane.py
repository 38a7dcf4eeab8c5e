"""Training from the page: the command that is run, its curve, cancelling, restarts; and once for real."""

import json
import sys
import time

import pytest
from helpers.served import client_at, dataset, ended, labels, nifti, site_at

from mona_infer.serving import training_lane
from mona_infer.serving.runs import Curve

# Stands in for `python -m mona_infer.serving.child`: writes what a run writes, and ends when it is told to.
STAND_IN = """
import json, signal, sys, time
from pathlib import Path
arguments = sys.argv[1:]
Path("asked.jsonl").open("a").write(json.dumps(arguments) + "\\n")
if arguments[0] == "export":
    Path(arguments[1], "model.onnx").write_bytes(Path("bands.onnx").read_bytes())
    sys.exit()
if arguments[0] == "label":
    order = {"format": "mona label next 1", "patients": [{"scans": ["heart4"]}, {"scans": ["heart3"]}]}
    Path(arguments[arguments.index("--json") + 1]).write_text(json.dumps(order))
    sys.exit("mona: advised, and then broken" if Path("broken").exists() else 0)
resumed = arguments[1] == "--resume"
run = Path(arguments[2] if resumed else arguments[arguments.index("--out") + 1])
steps = 40
if "--seed" in arguments and arguments[arguments.index("--seed") + 1] == "13":
    print("some output\\nmona: " + str(run.resolve()) + ": no training slice has a label; label one", file=sys.stderr)
    sys.exit(2)
run.mkdir(parents=True, exist_ok=True)
(run / "run.toml").write_text(f'steps = {steps}\\ndataset = "data"\\nmethod = "mona"\\n')
(run / "resolved.json").write_text(json.dumps({"data": str(Path("data").resolve())}))
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
with (run / "metrics.jsonl").open("a") as file:
    for step in range(20 if resumed else 10, steps + 1, 10):
        loss = {"loss": 1 / step, "weights": {"loss": 2.0}}
        file.write(json.dumps({"step": step, "stage": "s", "lr": 0.1, **loss}) + "\\n")
        file.write(json.dumps({"step": step, "dsc": step / 100, "asd": 1.0, "classes": {}}) + "\\n")
        file.flush()
        for _ in range(20 if Path("slow").exists() and not resumed else 1):
            if stop:
                sys.exit(130)
            time.sleep(0.05)
(run / "results.json").write_text(json.dumps({"best": {"step": 40, "dsc": 0.4}, "chosen": "best", "validation": {}}))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(training_lane, "PROGRAM", [sys.executable, str(tmp_path / "stand_in.py")])
    monkeypatch.setattr(training_lane, "LOOK", 0.05)
    return dataset(tmp_path / "data")


def start(client, **wishes):
    return client.post("/api/jobs", json={"kind": "train", **wishes}).json()["id"]


def asked(tmp_path):
    return [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]


def test_a_training_its_curve_and_its_model(tmp_path, model, folder):
    with client_at(tmp_path, model=model, dataset=folder) as client:
        job = ended(client, start(client, ratio=0.5, steps=40, preset="quick", seed=3))
        assert job["state"] == "done" and job["result"]["dsc"] == 0.4, job
        assert job["curve"][0] == {"step": 10, "dsc": 0.1, "loss": 0.2} and len(job["curve"]) == 4
        (run,) = client.get("/api/runs").json()
        assert (run["name"], run["dsc"], run["best_step"], run["finished"]) == ("data-served-1", 0.4, 40, True)
        assert run["curve"] == [[10, 0.1], [20, 0.2], [30, 0.3], [40, 0.4]]
        assert client.post("/api/model", json={"run": run["name"]}).status_code == 200
        train, export, advise = asked(tmp_path)
        assert train[:4] == ["train", "--dataset", str(folder), "--out"] and export == ["export", train[4]]
        assert train[5:] == ["--ratio", "0.5", "--preset", "quick", "--steps", "40", "--seed", "3"]
        advised = str(tmp_path / "state" / "label-next.json")
        assert advise == ["label", "next", str(folder), "--run", train[4], "--count", "3", "--json", advised]


@pytest.mark.parametrize("broken", [False, True])
def test_what_the_new_network_advises_is_what_comes_next(tmp_path, model, folder, broken):
    """Even a failed request for advice leaves the training done."""
    if broken:
        (tmp_path / "broken").touch()
    with client_at(tmp_path, model=model, dataset=folder) as client:
        before = [case["name"] for case in client.get("/api/cases").json()]
        assert before[:3] == ["heart2", "heart3", "heart4"]
        assert ended(client, start(client))["state"] == "done"
        assert [case["name"] for case in client.get("/api/cases").json()][:3] == ["heart4", "heart3", "heart2"]
        assert client.post("/activelearning/doubtful", json={}).json()["id"] == "heart4"


def test_where_every_scan_has_a_label_all_labels_are_used(tmp_path, model, folder):
    with client_at(tmp_path, model=model, dataset=folder) as client:
        ended(client, start(client))
        for n in range(2, 5):
            client.put(f"/api/cases/heart{n}/label", content=nifti(labels(n)))
        ended(client, start(client))
    first, second = (command for command in asked(tmp_path) if command[0] == "train")
    assert [command[0] for command in asked(tmp_path)].count("label") == 1  # and none once all have labels
    assert "--method" not in first and second[-2:] == ["--method", "unet-f"]


def test_why_a_training_failed_is_told_without_paths(tmp_path, model, folder):
    with client_at(tmp_path, model=model, dataset=folder) as client:
        job = ended(client, start(client, seed=13))
        assert job["state"] == "failed" and "no training slice has a label" in job["message"]
        assert str(tmp_path) not in job["message"]


def test_a_cancelled_training_ends_and_segmenting_goes_on_meanwhile(tmp_path, model, folder):
    (tmp_path / "slow").touch()
    with client_at(tmp_path, model=model, dataset=folder) as client:
        id = start(client)
        case = client.post("/api/jobs", json={"kind": "segment-case", "case": "heart0"}).json()["id"]
        assert ended(client, case)["state"] == "done"
        assert client.get(f"/api/jobs/{id}").json()["state"] in ("waiting", "running")
        assert client.get("/train/?check_if_running=true").status_code == 200
        assert client.post("/train/", json={}).status_code == 429
        client.delete(f"/api/jobs/{id}")
        assert ended(client, id)["state"] == "cancelled"
        assert client.get("/train/?check_if_running=true").status_code == 404
        assert client.get("/train/").json()["status"] == "REVOKED"


def test_a_training_goes_on_after_a_restart(tmp_path, model, folder):
    (tmp_path / "slow").touch()
    with client_at(tmp_path, model=model, dataset=folder) as client:
        id = start(client)
        until = time.monotonic() + 30
        while not client.get(f"/api/jobs/{id}").json()["curve"]:
            assert time.monotonic() < until
            time.sleep(0.05)
    with client_at(tmp_path, model=model, dataset=folder) as client:
        job = ended(client, id)
        assert job["state"] == "done" and job["result"]["run"] == "data-served-1"
    assert [command[:2] for command in asked(tmp_path)][1][0:2] == ["train", "--resume"]


def test_nothing_to_learn_from(tmp_path, model):
    folder = dataset(tmp_path / "data", labelled=0)
    with client_at(tmp_path, model=model, dataset=folder) as client:
        answer = client.post("/api/jobs", json={"kind": "train"})
        assert answer.status_code == 409 and "no scan has a label yet" in answer.json()["detail"]


def test_a_curve_is_read_as_it_grows(tmp_path):
    path = tmp_path / "metrics.jsonl"
    curve = Curve(path)
    assert curve.read() == []
    path.write_bytes(b'{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert curve.read() == [{"step": 1, "dsc": None, "loss": 2.0}]
    with path.open("ab") as file:
        file.write(b'ss": NaN}\nnonsense\n[]\n{"step": 3, "dsc": 0.5}\n')
    assert curve.read() == [{"step": 2, "dsc": None, "loss": None}, {"step": 3, "dsc": 0.5, "loss": None}]
    path.write_bytes(b'{"step": 1, "loss": 2.0}\n')  # resumed from a checkpoint: what came after it is gone
    assert len(curve.read()) == 1


@pytest.mark.full
def test_correct_and_train_for_real(tmp_path, model, monkeypatch):
    """`mona train` and `mona export` on labels of which one was saved here; the model segments another case."""
    pytest.importorskip("torch", reason="torch, of the extra `train`, is not installed")
    monkeypatch.chdir(tmp_path)
    folder = dataset(tmp_path / "data", labelled=1, unlabelled=3)
    with client_at(tmp_path, model=model, dataset=folder) as client:
        assert client.put("/api/cases/heart1/label", content=nifti(labels(1))).json()["saved"]
        until = time.monotonic() + 600
        id = start(client, preset="quick", method="unet-l", steps=4, seed=1)  # the quickest there is
        while (job := client.get(f"/api/jobs/{id}").json())["state"] in ("waiting", "running"):
            assert time.monotonic() < until
            time.sleep(0.5)
        assert job["state"] == "done", job["message"]
        log = next((tmp_path / "state" / "jobs").glob("*.log")).read_text()
        assert "of 2 patient(s) (heart0, heart1)" in log  # the label that was saved here is learned from
        assert client.post("/api/model", json={"run": job["result"]["run"]}).status_code == 200
        case = client.post("/api/jobs", json={"kind": "segment-case", "case": "heart2"}).json()["id"]
        assert ended(client, case)["state"] == "done"
        assert client.get("/api/cases/heart2/prediction").status_code == 200


def test_site_without_torch_says_so(tmp_path, model, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    with site_at(tmp_path, model=model, dataset=dataset(tmp_path / "data")) as site:
        assert not site.can_train
