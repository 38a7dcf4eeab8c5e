"""Bad input ends in exit code 2 and one sentence: no traceback, no output, no runaway memory."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import damaged
import nibabel as nib
import pytest

from mona_infer.errors import MonaError
from mona_infer.evaluate import match_cases, measure

MONA = Path(sys.executable).with_name("mona")
SAMPLE = 30
GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "ref.nii.gz"
    nib.save(nib.Nifti1Image(damaged.LABELS, damaged.AFFINE), path)
    return path


def test_the_undamaged_file_is_fine(reference, tmp_path):
    (tmp_path / "good.nii").write_bytes(damaged.good_bytes())
    assert measure(match_cases(tmp_path / "good.nii", reference))["mean"]["dsc"] == 1


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.full] if n >= SAMPLE else []) for n in range(damaged.COUNT)]
)
def test_the_command_ends_in_one_sentence(number, reference, tmp_path):
    scan = damaged.make(number, tmp_path)
    before = set(tmp_path.rglob("*"))
    outputs = [tmp_path / "out.csv", tmp_path / "out.json"]
    command = [MONA, "evaluate", scan, reference, "--csv", outputs[0], "--json", outputs[1]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    out, err = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 2, (damaged.KINDS[number % len(damaged.KINDS)], out, err)
    assert out == ""
    assert err.startswith("mona: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert set(tmp_path.rglob("*")) == before
    assert usage.ru_maxrss * 1024 < GIGABYTE


def test_the_rest_in_process(reference, tmp_path):
    """Every other input, through the same reading and checking, with the peak of this process watched."""
    for number in range(SAMPLE, damaged.COUNT):
        folder = tmp_path / str(number)
        folder.mkdir()
        scan = damaged.make(number, folder)
        with pytest.raises(MonaError) as caught:
            measure(match_cases(scan, reference))
        assert caught.value.exit_code == 2, (number, caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < GIGABYTE
