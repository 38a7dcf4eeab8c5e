"""Bad input ends in exit code 2 and one sentence: no traceback, no output, no runaway memory."""

import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import pytest
from helpers import damaged, damaged_files

from mona_infer.evaluation.measure import measure
from mona_infer.io.pairing import match_cases

EVERY_KIND = len(damaged_files.KINDS)
GIGABYTE = 1 << 30

# The commands themselves, one after the other, each with its peak memory: ru_maxrss would also count the test runner
# that the process was forked from.
COMMANDS = """
import contextlib, io, os, shutil, sys
from pathlib import Path
from helpers import damaged_files
from mona_infer.cli.main import main

folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.chdir(folder)
highest = 0
for number in range(first, first + count):
    inside = folder / str(number)
    inside.mkdir()
    sys.argv = ["mona", *map(str, damaged_files.command(number, inside))]
    before, out, err, code = sorted(folder.rglob("*")), io.StringIO(), io.StringIO(), None
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the present
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    peak = next(int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM")) << 10
    highest = max(highest, peak)
    what = f"input {number} ({damaged_files.kind(number)}): exit code {code}, {out.getvalue()!r}, {err.getvalue()!r}"
    said = err.getvalue()
    assert code == 2, what
    announced = out.getvalue() == "" or out.getvalue().startswith(damaged_files.ANNOUNCES.get(sys.argv[1], "?"))
    assert announced and said.startswith("mona: ") and said.count(chr(10)) == 1, what
    assert len(said) < 2000 and said.rstrip(chr(10)).isprintable(), what
    # `mona data prepare` keeps its lock, and what it has of a cache, for the next try
    left = [path for path in sorted(folder.rglob("*")) if path.suffix not in (".lock", ".shards")]
    assert left == before, what
    assert peak < 1 << 30, what
    shutil.rmtree(inside)
print(highest)
"""


def test_the_undamaged_file_is_fine(tmp_path):
    reference = tmp_path / "ref.nii.gz"
    nib.save(nib.Nifti1Image(damaged.LABELS, damaged.AFFINE), reference)
    (tmp_path / "good.nii").write_bytes(damaged.good_bytes())
    assert measure(match_cases(tmp_path / "good.nii", reference))["mean"]["dsc"] == 1


@pytest.mark.parametrize(
    ("first", "count"),
    [(EVERY_KIND, 4 * EVERY_KIND), pytest.param(0, damaged_files.COUNT, marks=pytest.mark.full)],
    ids=["a sample", "all"],
)
def test_every_command_ends_as_input_error(first, count, tmp_path, record_property):
    pytest.importorskip("torch")  # for runs and data sets
    command = [sys.executable, "-c", COMMANDS, tmp_path, str(first), str(count)]
    paths = os.pathsep.join([str(Path(damaged.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr[-3000:]
    highest = int(done.stdout)
    record_property("count", f"damaged inputs: {count} refused, at most {highest >> 20} MB in the process")


@pytest.mark.parametrize("number", [0, 3, 6, *range(len(damaged.KINDS), EVERY_KIND)], ids=damaged_files.kind)
def test_in_a_process_of_its_own(number, tmp_path):
    """The exit code and the streams of the real command: three of the NIfTI kinds (one a bomb), and the others."""
    inside = tmp_path / "in"
    inside.mkdir()
    arguments = damaged_files.command(number, inside)
    before = set(tmp_path.rglob("*"))
    command = [Path(sys.executable).with_name("mona"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == "" or done.stdout.startswith(damaged_files.ANNOUNCES.get(arguments[0], "?"))
    assert done.stderr.startswith("mona: ")
    assert done.stderr.count("\n") == 1
    assert {path for path in tmp_path.rglob("*") if path.suffix not in (".lock", ".shards")} == before
