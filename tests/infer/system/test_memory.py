"""A whole CT read, preprocessed and restored within 1.5 times its own voxels plus 200 MB."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mona_infer import Volume
from mona_infer.io.nifti import write_nifti

# VmHWM, because ru_maxrss would also count the test runner this process was forked from.
PROGRAM = """
import sys
import numpy as np
from pathlib import Path
from mona_infer import read_volume
from mona_infer.io.nifti import write_mask
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC, Intensity
from dataclasses import replace

rule = {"window": Intensity("window", -200, 250), "percentile": Intensity("percentile", 0.5, 99.5)}[sys.argv[2]]
task = replace(CARDIAC, slices="inferior-superior", intensity=rule)
volume = read_volume(sys.argv[1])
stack = SliceStack(volume, task)
mask = stack.empty_mask()
for start, batch in stack.batches(8):
    stack.restore(mask, start, np.stack([batch, 1 - batch, batch * 2 - 1, batch], axis=1))
write_mask(Path(sys.argv[1]).with_name("mask.nii.gz"), volume.with_voxels(mask))
print(next(int(row.split()[1]) * 1024 for row in open("/proc/self/status") if row.startswith("VmHWM")))
"""


@pytest.mark.parametrize("rule", ["window", pytest.param("percentile", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "axes", [(0, 1, 2), pytest.param((2, 0, 1), marks=pytest.mark.full)], ids=["axial", "sagittal"]
)
def test_peak_memory_of_a_ct(tmp_path, rule, axes):
    shape, affine = (512, 512, 300), np.diag([0.7, 0.7, 1.0, 1.0])
    rng = np.random.default_rng(0)
    voxels = np.empty(shape, np.int16, order="F")
    for k in range(shape[2]):
        voxels[:, :, k] = rng.integers(-1000, 1000, shape[:2], np.int16)
    turned = affine.copy()
    turned[:3, :3] = affine[:3, list(axes)]
    path = tmp_path / "ct.nii.gz"
    write_nifti(path, Volume(voxels.transpose(axes), turned))
    size = voxels.nbytes
    del voxels
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, rule], capture_output=True, text=True, check=True, env=os.environ
    )
    peak = int(done.stdout)
    print(f"\npeak {peak / 1e6:.0f} MB for {size / 1e6:.0f} MB of voxels, limit {(1.5 * size + 200e6) / 1e6:.0f} MB")
    assert peak < 1.5 * size + 200e6


SEGMENT = """
import sys
from mona_infer.cli.main import app
app(["segment", *sys.argv[1:]], standalone_mode=False)
print(next(int(row.split()[1]) * 1024 for row in open("/proc/self/status") if row.startswith("VmHWM")))
"""


@pytest.mark.full
def test_peak_memory_of_segmenting_a_ct_with_the_papers_network(tmp_path):
    """End to end below 1.2 GB, and within --max-ram where it is given."""
    import torch

    from mona_infer.models.file import seal, write_model
    from mona_infer.task import CARDIAC
    from mona_train.export.onnx import serialise, to_onnx
    from mona_train.networks.unet import UNet

    torch.manual_seed(0)
    task = json.loads(CARDIAC.to_json())
    write_model(tmp_path / "model.onnx", seal(serialise(to_onnx(UNet(4), (256, 256))), {"task": task}))
    voxels = np.random.default_rng(0).integers(0, 1000, (512, 512, 300), np.int16).T.reshape((512, 512, 300), order="F")
    write_nifti(tmp_path / "ct.nii.gz", Volume(voxels, np.diag([0.7, 0.7, 1.5, 1.0])))
    del voxels
    masks = []
    for limit, options in ((1.2e9, []), (0.6e9, ["--max-ram", "600MB"])):
        arguments = [tmp_path / "ct.nii.gz", "--out", tmp_path / "m.nii.gz", "--model", tmp_path / "model.onnx"]
        command = [sys.executable, "-c", SEGMENT, *arguments, "--overwrite", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        peak = int(done.stdout.split()[-1])
        print(f"\npeak {peak / 1e6:.0f} MB, limit {limit / 1e6:.0f} MB")
        assert peak < limit
        masks.append((tmp_path / "m.nii.gz").read_bytes())
    assert masks[0] == masks[1]
