"""`mona data prepare --cluster` makes the same cache, byte for byte."""

import json
import subprocess

import pytest
from helpers.cohorts import files
from helpers.dataset_files import mask, save, scan
from helpers.launching import BIN, PATIENCE

pytest.importorskip("distributed", reason="distributed, of the extra `cluster`, is not installed")


def prepare(folder, out, *options):
    words = [BIN / "mona", "data", "prepare", "Task", "--size", "32x32", "--out", out, *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.full
def test_a_cluster_prepares_the_same_cache(tmp_path):
    for n in range(9):
        save(tmp_path / f"Task/imagesTr/case_{n}.nii.gz", scan(n))
        save(tmp_path / f"Task/labelsTr/case_{n}.nii.gz", mask(n))
    labels = {"0": "background", "1": "a", "2": "b", "3": "c"}
    cases = [
        {"image": f"./imagesTr/case_{n}.nii.gz", "label": f"./labelsTr/case_{n}.nii.gz"} for n in range(9)
    ]  # as in the Decathlon
    facts = {"name": "task", "modality": {"0": "MRI"}, "labels": labels, "numTraining": 9, "training": cases}
    (tmp_path / "Task/dataset.json").write_text(json.dumps(facts))
    here = prepare(tmp_path, "here")
    assert here.returncode == 0, here.stderr
    spread = prepare(tmp_path, "spread", "--cluster", "local:2")
    assert spread.returncode == 0, spread.stderr
    assert files(tmp_path / "here") == files(tmp_path / "spread")
