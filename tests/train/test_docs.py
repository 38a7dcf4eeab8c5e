"""The adapter printed in docs/datasets.md works as printed."""

import re
from pathlib import Path

import nibabel as nib
import numpy as np

from mona_train.data.prepare import prepare

DOCS = Path(__file__).parents[2] / "docs" / "datasets.md"


def test_the_printed_adapter_prepares_a_data_set(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    for folder in ("scans", "masks"):
        (tmp_path / "raw" / folder).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for patient in ("a", "b"):
        scan = rng.integers(0, 99, (12, 10, 5)).astype(np.int16)
        nib.save(nib.Nifti1Image(scan, np.diag([1.0, 1.0, 5.0, 1.0])), tmp_path / "raw" / "scans" / f"{patient}.nii.gz")
    mask = nib.Nifti1Image((scan > 50).astype(np.uint8), np.diag([1.0, 1.0, 5.0, 1.0]))
    nib.save(mask, tmp_path / "raw" / "masks" / "b.nii.gz")
    assert names["ADAPTER"].recognises(tmp_path / "raw")
    cache = prepare(names["ADAPTER"], tmp_path / "raw", tmp_path / "cache")
    assert [case.first_label is None for case in cache.cases] == [True, False]
    assert cache.labels.max() == 1
