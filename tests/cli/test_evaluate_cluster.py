"""`mona evaluate --cluster`: the same numbers as in one process."""

from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import train_commands


@pytest.mark.full
def test_the_numbers_are_those_of_one_process(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask, of the extra `cluster`, is not installed")
    pytest.importorskip("dask", reason="Dask, of the extra `cluster`, is not installed")
    rng = np.random.default_rng(0)
    for folder in ("masks", "references"):
        (tmp_path / folder).mkdir()
        for n in range(5):
            voxels = np.zeros((12, 14, 5), np.uint8)
            low = rng.integers(1, 4, 2)
            voxels[low[0] : 10, low[1] : 11, 1:4] = 1 + n % 2
            nib.save(nib.Nifti1Image(voxels, np.diag([1.5, 1.5, 8.0, 1.0])), tmp_path / folder / f"case{n}.nii.gz")
    command = ["evaluate", "masks", "references", "--json"]
    alone = train_commands.mona(tmp_path, *command)
    spread = train_commands.start(tmp_path, *command, "--cluster", "local:2")
    said, complaint = spread.communicate(timeout=300)
    assert (alone.code, spread.returncode) == (0, 0), complaint
    assert json.loads(said) == json.loads(alone.out) and len(json.loads(said)["cases"]) == 5
