"""Files that are no scans at all: empty, pipes, sockets, upper-case names; and sizes that look alike."""

import os
import re
import socket
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import models

from mona_infer import InputError, read_volume
from mona_infer.cli.main import app
from mona_infer.segmenting.jobs import find_jobs
from mona_infer.system.memory_budget import TooLarge, sizes_in_words


@pytest.mark.parametrize("name", ["scan.nii.gz", "scan.nii", "scan.nrrd", "scan.mha", "scan.hdr"])
def test_an_empty_file_is_called_empty(tmp_path, name):
    for end in (name, "scan.img"):
        (tmp_path / end).write_bytes(b"")
    with pytest.raises(InputError, match=rf"{name} is empty \(0 bytes\)"):
        read_volume(tmp_path / name)


@pytest.mark.parametrize("name", ["scan.nii.gz", "scan.nii", "scan.dcm", "scan.zip", "scan.nrrd", "scan.mha", "scan"])
def test_a_pipe_a_socket_and_a_device_are_refused_and_not_waited_for(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    os.mkfifo(name)
    with pytest.raises(InputError, match="is a named pipe, not a file"):
        read_volume(name)
    with pytest.raises(InputError, match="is a named pipe"):
        app(["evaluate", name, name], standalone_mode=False)
    Path(name).unlink()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(name)
        with pytest.raises(InputError, match="is a socket"):
            read_volume(name)
    Path(name).unlink()
    Path(name).symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a device"):
        read_volume(name)


def test_a_pipe_in_a_folder_job_is_one_failed_case(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    (tmp_path / "scans").mkdir()
    nib.save(nib.Nifti1Image(models.scan(), np.diag([1.5, 1.5, 8, 1])), "scans/a.nii.gz")
    os.mkfifo("scans/b.nii.gz")
    with pytest.raises(Exception, match="1 of 2 cases failed"):
        app(["segment", "scans", "--out", "masks", "--model", "model.onnx"], standalone_mode=False)
    assert "is a named pipe" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "masks").iterdir()] == ["a.nii.gz"]


def test_upper_case_names_are_cases_and_masks_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    for name in ("A.NII.GZ", "b.Nii", "C_gt.NII.GZ", "C.nii"):
        plain = Path(name.lower())
        nib.save(nib.Nifti1Image(np.ones((4, 5, 6), np.uint8), np.eye(4)), plain)
        plain.rename(tmp_path / "scans" / name)
    jobs, folder = find_jobs(tmp_path / "scans", tmp_path / "out", tmp_path / "scans")
    assert folder and [job.name for job in jobs] == ["A", "C", "b"]
    assert jobs[0].reference.name == "A.NII.GZ" and jobs[1].reference.name == "C_gt.NII.GZ"
    (tmp_path / "scans" / "C.nii").unlink()  # beside C_gt it would be a second reference of one case
    app(["evaluate", "scans", "scans"], standalone_mode=False)


def test_sizes_are_shown_so_that_they_differ():
    assert sizes_in_words(2_000_000_000, 1_500_000_000) == ("2.00 GB", "1.50 GB")
    assert sizes_in_words(104_000_000, 100_000_000) == ("0.104 GB", "0.100 GB")
    assert sizes_in_words(100_000_001, 100_000_000) == ("0.100000001 GB", "0.100000000 GB")
    assert sizes_in_words(100_000_001, 99_999_999) == ("100.000001 MB", "99.999999 MB")
    words = str(TooLarge("scan.nii.gz", 104_000_000, 101_000_000, "crop it"))
    assert words == "scan.nii.gz needs 0.104 GB of memory, but only 0.101 GB can be used; crop it"


def test_what_is_needed_does_not_follow_what_is_allowed(tmp_path, monkeypatch):
    """It was always 0.02 MB more than --max-ram where the model alone needed more than that."""
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    nib.save(nib.Nifti1Image(models.scan(), np.diag([1.5, 1.5, 8, 1])), "scan.nii.gz")
    needed = []
    for allowed in (20, 40):
        limit = ["--max-ram", f"{allowed}MB"]
        with pytest.raises(InputError, match=rf"allows {allowed}\.00 MB; allow more") as refusal:
            app(["segment", "scan.nii.gz", "--out", "m.nii.gz", "--model", "model.onnx", *limit], standalone_mode=False)
        needed.append(float(re.search(r"needs ([\d.]+) MB", str(refusal.value))[1]))
    assert needed[1] == pytest.approx(needed[0], rel=0.3) and min(needed) > 41
