"""The real `mona segment` from and to a store, half of whose answers fail."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import models

pytest.importorskip("s3fs")
pytest.importorskip("moto")

from helpers.faulty_store import BUCKET, store

MONA = Path(sys.executable).with_name("mona")
CASES = 12
PATIENCE = 120  # seconds for a command to get somewhere, on a busy machine


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return models.write(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture
def shop():
    with store(seed=7) as running:
        yield running


def mona(shop, *args, **env):
    words = [MONA, *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | shop.env | env)


def write_scans(folder, count):
    for n in range(count):
        path = folder / ("deep" if n % 3 else "") / f"scan {n}.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(nib.Nifti1Image(models.scan(n), np.diag([1.5, 1.5, 8.0, 1.0])), path)
    return sorted(folder.rglob("*.nii.gz"))


def upload(shop, folder, prefix):
    for path in folder.rglob("*.nii.gz"):
        shop.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def test_a_cohort_from_and_to_a_store_that_fails_half_of_its_answers(shop, model, tmp_path):
    """Nothing lost, nothing partial, and the masks are those of the local job, byte for byte."""
    scans = tmp_path / "scans"
    write_scans(scans, CASES)
    upload(shop, scans, "scans")
    shop.put("scans/zz.nii.gz", b"not a scan")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert mona(shop, "segment", scans, "--out", tmp_path / "masks", "--model", model).returncode == 0
    wanted = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in (tmp_path / "masks").rglob("*.nii.gz")}
    shop.faults.share = 0.5
    command = ["segment", f"s3://{BUCKET}/scans", "--out", f"s3://{BUCKET}/masks/", "--model", model]
    done = mona(shop, *command, TMPDIR=str(scratch))
    assert done.returncode == 1, done.stderr
    assert f"{CASES} segmented, 0 had a mask already, 1 failed" in done.stdout
    assert f"zz: s3://{BUCKET}/scans/zz.nii.gz" in done.stderr and "/scratch/" not in done.stderr + done.stdout
    assert {key: shop.get(key) for key in shop.keys("masks/")} == wanted
    assert len(wanted) == CASES
    assert shop.faults.failed.total() > 0.3 * shop.faults.asked
    assert not list(scratch.iterdir())
    # Again: only what is left, as one listing tells.
    shop.faults.share, shop.faults.requests[:] = 0, []
    shop.s3.delete_object(Bucket=BUCKET, Key="scans/zz.nii.gz")
    shop.s3.delete_object(Bucket=BUCKET, Key="masks/deep/scan 1.nii.gz")
    again = mona(shop, *command)
    assert again.returncode == 0, again.stderr
    assert f"1 segmented, {CASES - 1} had a mask already, 0 failed" in again.stdout
    assert {key: shop.get(key) for key in shop.keys("masks/")} == wanted
    told = [(method, path, "list" if "list-type" in query else "") for method, path, query in shop.faults.requests]
    scan, mask = f"/{BUCKET}/scans/deep/scan 1.nii.gz", f"/{BUCKET}/masks/deep/scan 1.nii.gz"
    listed = ("GET", f"/{BUCKET}", "list")
    assert [request for request in told if request[1] != f"/{BUCKET}/scans"] == [
        listed,
        listed,
        ("HEAD", scan, ""),
        ("GET", scan, ""),
        ("PUT", mask, ""),
    ]


def test_one_scan_each_way(shop, model, tmp_path):
    (scan,) = write_scans(tmp_path / "scans", 1)
    shop.put("a b/scan.nii.gz", scan.read_bytes())
    remote, here = f"s3://{BUCKET}/a b/scan.nii.gz", tmp_path / "mask.nii.gz"
    done = mona(shop, "segment", remote, "--out", here, "--model", model)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"wrote {here}"
    target = f"s3://{BUCKET}/mask.nii.gz"
    done = mona(shop, "segment", scan, "--out", target, "--model", model)
    assert done.returncode == 0, done.stderr
    assert shop.get("mask.nii.gz") == here.read_bytes()
    again = mona(shop, "segment", scan, "--out", target, "--model", model)
    assert (again.returncode, again.stderr) == (
        2,
        f"mona: s3://{BUCKET}/mask.nii.gz exists already; --overwrite replaces it\n",
    )


@pytest.mark.parametrize(
    ("scan", "out", "words"),
    [
        (f"s3://{BUCKET}/none.nii.gz", "m.nii.gz", f"s3://{BUCKET}/none.nii.gz does not exist"),
        (
            "s3://no-such-bucket/a.nii.gz",
            "m.nii.gz",
            "no-such-bucket/a.nii.gz cannot be listed: there is no such bucket",
        ),
        (f"s3://{BUCKET}/scans", f"s3://{BUCKET}/scans/masks", "is inside"),
        (f"s3://{BUCKET}/scans", "mask.nii.gz", "holds 2 scans but mask.nii.gz names a single mask"),
        (f"s3://{BUCKET}/scans", "zip://a::b.zip", "zips are for reading"),
        ("nowhere://b/a.nii.gz", "m.nii.gz", "is not a store that fsspec knows"),
    ],
)
def test_mistakes_are_told_in_one_sentence(shop, scan, out, words, monkeypatch):
    """In this process: a command starts slowly, and what is looked at is the sentence."""
    from mona_infer.cohort.remote import find_jobs
    from mona_infer.errors import InputError
    from mona_infer.io.remote import s3

    for name, value in shop.env.items():
        monkeypatch.setenv(name, value)
    s3.connected.cache_clear()
    shop.put("scans/a.nii.gz", b"a")
    shop.put("scans/b.nii.gz", b"b")
    with pytest.raises(InputError, match=words):
        find_jobs(scan, out)
    s3.connected.cache_clear()


def test_without_the_packages(shop, model, tmp_path):
    """Exit code 3 and the command that installs them."""
    block = tmp_path / "blocked"
    block.mkdir()
    (block / "s3fs.py").write_text("raise ModuleNotFoundError(\"No module named 's3fs'\", name='s3fs')\n")
    done = mona(
        shop, "segment", f"s3://{BUCKET}/a.nii", "--out", tmp_path / "m.nii", "--model", model, PYTHONPATH=str(block)
    )
    assert done.returncode == 3, done.stderr
    assert "this needs s3fs, which is not installed; run: " in done.stderr and 'pip install "s3fs>=' in done.stderr


def test_what_only_this_disk_takes():
    from mona_infer.cohort.remote import refuse_places
    from mona_infer.errors import InputError

    refuse_places(stats=Path("a/b.json"), page=Path("C:/a.html"), reference=None)
    with pytest.raises(
        InputError, match=r"--stats is a file or folder on this disk, not in a store; found s3:/b/a.json"
    ):
        refuse_places(page=None, stats=Path("s3://b/a.json"))


def test_a_list_of_scans_in_a_store(tmp_path):
    """Nothing is asked of a store while a list is read."""
    from mona_infer.cohort.remote import find_jobs
    from mona_infer.errors import InputError

    listed = tmp_path / "list.csv"
    listed.write_text("scan,case\ns3://b/x/p1/t1.nii.gz,\ns3://b/x/p2/t1.nii.gz,second\ns3://b/x/p3/,\n")
    jobs, many = find_jobs(str(listed), "s3://b/masks")
    assert many
    assert [(job.name, job.source, job.target) for job in jobs] == [
        ("p1/t1", "s3://b/x/p1/t1.nii.gz", "s3://b/masks/p1/t1.nii.gz"),
        ("p3", "s3://b/x/p3/", "s3://b/masks/p3.nii.gz"),
        ("second", "s3://b/x/p2/t1.nii.gz", "s3://b/masks/second.nii.gz"),
    ]
    listed.write_text("scan\ns3://b/p1.nii.gz\nhere.nii.gz\n")
    with pytest.raises(InputError, match=r"lists 1 scans in a store and 1 files; give one list of each"):
        find_jobs(str(listed), str(tmp_path / "masks"))


def test_ctrl_c_while_the_store_does_not_answer(shop, model, tmp_path):
    write_scans(tmp_path / "scans", 2)
    upload(shop, tmp_path / "scans", "scans")
    shop.faults.rule = lambda method, path, query: "503" if path.endswith(".gz") and "/scans/" in path else None
    command = [MONA, "segment", f"s3://{BUCKET}/scans", "--out", f"s3://{BUCKET}/masks", "--model", model]
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=os.environ | shop.env) as run:
        until = time.monotonic() + PATIENCE
        while shop.faults.failed["503"] < 9 and run.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        before = shop.faults.asked
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=PATIENCE)
    assert (run.returncode, told) == (130, "mona: interrupted\n")
    assert shop.faults.asked - before <= 2
    assert shop.keys("masks") == []


@pytest.mark.full
def test_a_cluster_from_and_to_a_store_that_fails_half_of_its_answers(shop, model, tmp_path):
    pytest.importorskip("distributed")
    write_scans(tmp_path / "scans", CASES)
    upload(shop, tmp_path / "scans", "scans")
    assert mona(shop, "segment", tmp_path / "scans", "--out", tmp_path / "masks", "--model", model).returncode == 0
    wanted = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in (tmp_path / "masks").rglob("*.nii.gz")}
    shop.faults.share = 0.5
    command = ["segment", f"s3://{BUCKET}/scans", "--out", f"s3://{BUCKET}/masks", "--model", model]
    done = mona(shop, *command, "--cluster", "local:2", "--summary", tmp_path / "table.csv")
    assert done.returncode == 0, done.stderr
    assert {key: shop.get(key) for key in shop.keys("masks/")} == wanted
    assert len((tmp_path / "table.csv").read_text().splitlines()) == CASES + 1
