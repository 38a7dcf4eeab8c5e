"""The queue: order, cancelling, and what becomes of jobs when the server stops, however it stops."""

import io
import json
import time
from itertools import pairwise

import pytest
from helpers import models
from helpers.served import Process, ask, client_at, ended, nifti, send, site_at, upload

from mona_infer.serving import jobs as room
from mona_infer.serving.jobs import Cancelled, Jobs, QueueFull
from mona_infer.serving.state import State


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path)
    with made.only_here():
        yield made


def test_lanes_have_their_own_order(state):
    jobs = Jobs(state)
    first, training, second = (jobs.submit(kind, {}) for kind in ("segment", "train", "segment-case"))
    assert jobs.take("segmenting", 9, lambda job: None) == [first, second]
    assert jobs.take("training", 9, lambda job: None) == [training]


def test_jobs_that_need_another_model_wait_for_their_turn(state):
    jobs = Jobs(state)
    made = [jobs.submit("segment", {"model": name}) for name in "aaba"]
    assert jobs.take("segmenting", 9, lambda job: job.about["model"]) == [made[0], made[1], made[3]]


def test_a_cancelled_job_never_runs(state):
    jobs = Jobs(state)
    job, running = jobs.submit("segment", {}), jobs.submit("segment", {})
    jobs.cancel(job)
    assert job.state == "cancelled" and jobs.take("segmenting", 9, lambda job: None) == [running]
    jobs.start(running, "at work")
    jobs.cancel(running)
    assert running.state == "running"  # until its worker notices
    with pytest.raises(Cancelled):
        jobs.tell(running, 0.5)
    jobs.end(running, "cancelled", "cancelled")
    jobs.end(running, "done", "too late")
    assert running.state == "cancelled"


def test_a_job_that_was_running_is_run_again_but_not_for_ever(state):
    jobs = Jobs(state)
    waiting, done, running = (jobs.submit("segment", {"scan": name}) for name in "abc")
    jobs.start(running, "at work")
    jobs.end(done, "done", "done", {"mask": "here"})
    for attempt in range(2, room.ATTEMPTS + 1):
        jobs = Jobs(state)
        assert jobs.get(waiting.id).state == "waiting" and jobs.get(done.id).result == {"mask": "here"}
        assert jobs.get(running.id).state == "waiting" and "restarted" in jobs.get(running.id).message
        jobs.start(jobs.get(running.id), "at work")
        assert jobs.get(running.id).attempts == attempt
    jobs = Jobs(state)
    assert jobs.get(running.id).state == "failed" and "not tried again" in jobs.get(running.id).message


def test_a_server_that_is_stopped_in_order_does_not_count_as_an_attempt(state):
    jobs = Jobs(state)
    job = jobs.submit("train", {})
    for _ in range(2 * room.ATTEMPTS):
        jobs.start(job, "at work")
        jobs.leave(job)
        jobs = Jobs(state)
        job = jobs.get(job.id)
        assert job.state == "waiting"


def test_a_damaged_job_file_does_not_keep_the_server_from_starting(state):
    jobs = Jobs(state)
    job = jobs.submit("segment", {})
    (state.jobs / "0123456789abcdef.json").write_text('{"kind": "seg')
    (state.jobs / "../evil.json").write_text("{}")
    assert [found.id for found in Jobs(state).all()] == [job.id]


def test_the_queue_has_an_end(state, monkeypatch):
    monkeypatch.setattr(room, "MOST_WAITING", 2)
    monkeypatch.setattr(room, "MOST_KEPT", 1)
    jobs = Jobs(state)
    first = jobs.submit("segment", {})
    jobs.submit("segment", {})
    with pytest.raises(QueueFull):
        jobs.submit("segment", {})
    jobs.end(first, "done", "done")
    jobs.end(jobs.submit("segment", {}), "done", "done")
    jobs.submit("segment", {})
    assert len(list(state.jobs.glob("*.json"))) == 3  # one that has ended, two that wait


def test_the_points_of_a_curve_are_joined_by_step(state):
    job = Jobs(state).submit("train", {})
    first = [{"step": 10, "dsc": None, "loss": 1.0}, {"step": 10, "dsc": 0.5, "loss": None}]
    for point in (*first, {"step": 20, "dsc": None, "loss": 0.5}):
        job.add(point)
    assert job.points == [{"step": 10, "dsc": 0.5, "loss": 1.0}, {"step": 20, "dsc": None, "loss": 0.5}]


def test_events_tell_of_a_job_until_it_has_ended(client):
    id = upload(client, nifti(models.scan())).json()["id"]
    job = client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"]
    with client.stream("GET", f"/api/jobs/{job}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = list(answer.iter_lines())
    said = [json.loads(line[6:]) for before, line in pairwise(lines) if before == "event: state"]
    assert said[-1]["state"] == "done" and said[-1]["result"]["classes"]


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "segment"},
        {"kind": "segment", "scan": "../../etc"},
        {"kind": "segment-case", "case": "nowhere"},
        {"kind": "dance"},
        {"kind": "train"},
        {"kind": "train", "ratio": 2},
        {"kind": "train", "preset": "--out"},
        {"kind": "segment", "scan": "x", "command": "rm"},
        [],
    ],
)
def test_jobs_that_cannot_be(client, body):
    answer = client.post("/api/jobs", json=body)
    assert answer.status_code in (404, 409, 422) and isinstance(answer.json()["detail"], str)
    assert client.get("/api/jobs").json() == []


def test_a_model_that_is_not_there(tmp_path):
    with client_at(tmp_path) as client:  # the server starts: a first model can be trained
        assert client.get("/api/info").json()["model"] is None
        id = upload(client, nifti(models.scan())).json()["id"]
        answer = client.post("/api/jobs", json={"kind": "segment", "scan": id})
        assert answer.status_code == 422 and "no model yet" in answer.json()["detail"]


def test_one_scan_that_fails_does_not_stop_the_others(client):
    good = [upload(client, nifti(models.scan(n))).json()["id"] for n in range(2)]
    whole = nifti(models.scan(5))
    bad = upload(client, whole[: len(whole) // 2]).json()["id"]
    ids = [
        client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"] for id in (good[0], bad, good[1])
    ]
    assert [ended(client, id)["state"] for id in ids] == ["done", "failed", "done"]


def test_a_bug_ends_its_job_and_not_the_worker(client, monkeypatch, caplog):
    from mona_infer.serving import segmenting_lane

    real = segmenting_lane.run

    def broken(*args, **kwargs):
        monkeypatch.setattr(segmenting_lane, "run", real)
        raise ZeroDivisionError("Mustermann")

    monkeypatch.setattr(segmenting_lane, "run", broken)
    id = upload(client, nifti(models.scan())).json()["id"]
    job = ended(client, client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"])
    assert job["state"] == "failed" and job["message"] == "this failed on the server; its log says more"
    assert "ZeroDivisionError" in caplog.text and "Mustermann" not in caplog.text
    job = ended(client, client.post("/api/jobs", json={"kind": "segment", "scan": id}).json()["id"])
    assert job["state"] == "done"


def test_waiting_jobs_are_done_by_the_next_server(tmp_path, model):
    with site_at(tmp_path, model=model) as site:
        scans = [site.scans.add(io.BytesIO(nifti(models.scan(n))), None) for n in range(3)]
        ids = [site.segment(scan, None).id for scan in scans]  # no worker was started: they wait
    with client_at(tmp_path, model=model) as client:
        assert {ended(client, id)["state"] for id in ids} == {"done"}


def test_no_job_is_lost_when_the_server_is_killed(tmp_path, model):
    """SIGKILL while it works through 12 scans; the next server does the rest, and what was done stays done."""
    arguments = ("--model", str(model), "--state", str(tmp_path / "state"), "--threads", "1", "--engine", "cpu")
    server = Process(tmp_path, *arguments)
    try:
        ids = [send(server.address, nifti(models.scan(n, (120, 110, 12)))) for n in range(12)]
    finally:
        server.kill()
    server = Process(tmp_path, *arguments)
    try:
        until = time.monotonic() + 60
        while not all(job["state"] == "done" for job in ask(f"{server.address}/api/jobs")):
            assert time.monotonic() < until
            time.sleep(0.05)
        found = ask(f"{server.address}/api/jobs")
        assert sorted(job["id"] for job in found) == sorted(ids)
        assert len(list((tmp_path / "state" / "scans").glob("*/mask.nii.gz"))) == 12
        assert not list((tmp_path / "state").rglob(".????????.*"))
    finally:
        code = server.stop()
    assert code in (130, 0)  # as after Ctrl-C; 0 where the tests themselves run in the background, which ignores it
    assert b"Traceback" not in server.said()
