"""Bad input ends in exit code 2 and one sentence: no traceback, no output, no runaway memory."""

import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import pytest
from helpers import damaged

from mona_infer.evaluation.measure import measure
from mona_infer.io.pairing import match_cases

SAMPLE = 30
GIGABYTE = 1 << 30

# The command itself, and its peak memory written where this test can read it: ru_maxrss would also count the test
# runner that the process was forked from.
COMMAND = """
import atexit, sys
from pathlib import Path
from mona_infer.cli.main import main

def report(path=sys.argv.pop(1)):
    peak = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    Path(path).write_text(peak.split()[1])

atexit.register(report)
main()
"""

IN_PROCESS = """
import sys
from pathlib import Path
from helpers import damaged
from mona_infer.errors import MonaError
from mona_infer.evaluation.measure import measure
from mona_infer.io.pairing import match_cases

reference, folder, first = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
for number in range(first, damaged.COUNT):
    inside = folder / str(number)
    inside.mkdir()
    scan = damaged.make(number, inside)
    try:
        measure(match_cases(scan, reference))
    except MonaError as error:
        assert error.exit_code == 2, (number, error)
        assert chr(10) not in str(error) and len(str(error)) < 600, (number, error)
    else:
        raise SystemExit(f"input {number} ({damaged.KINDS[number % len(damaged.KINDS)].__name__}) was accepted")
print(next(row.split()[1] for row in open("/proc/self/status") if row.startswith("VmHWM")))
"""


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
def test_the_command_ends_as_input_error(number, reference, tmp_path, tmp_path_factory):
    scan = damaged.make(number, tmp_path)
    before = set(tmp_path.rglob("*"))
    peak = tmp_path_factory.mktemp("peak") / "kilobytes"
    files = "--csv", tmp_path / "out.csv", "--json", tmp_path / "out.json"
    command = [sys.executable, "-c", COMMAND, peak, "evaluate", scan, reference, *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, (damaged.KINDS[number % len(damaged.KINDS)], done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("mona: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert set(tmp_path.rglob("*")) == before
    assert int(peak.read_text()) * 1024 < GIGABYTE


def test_the_rest_in_process(reference, tmp_path):
    """Every other input, through the same reading and checking, in one process whose peak is watched."""
    command = [sys.executable, "-c", IN_PROCESS, reference, tmp_path, str(SAMPLE)]
    paths = os.pathsep.join([str(Path(damaged.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < GIGABYTE
