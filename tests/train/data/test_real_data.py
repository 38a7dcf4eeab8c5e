"""ACDC and Hippocampus as they are shared: both ACDC layouts make one and the same cache."""

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from mona_train.data.adapters import locate
from mona_train.data.prepare import STEPS, prepare
from mona_train.data.split import split

pytestmark = pytest.mark.xdist_group("real data")  # one worker, so that ACDC is unpacked once

DATA = Path(__file__).parents[4] / "shared" / "data"
UNPACK = DATA / "acdc" / "unpack.py"
HIPPOCAMPUS = DATA / "hippocampus" / "Task04_Hippocampus.tar"


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    if not UNPACK.exists():
        pytest.skip(f"real ACDC is not at {UNPACK.parent}")
    folder, made = tmp_path_factory.mktemp("acdc"), {}
    for layout in ("challenge", "ssl4mis"):
        subprocess.run([sys.executable, UNPACK, folder / layout, "--layout", layout], check=True)
        made[layout] = prepare(*locate("acdc", folder / layout), folder / f"cache-{layout}")
    return made


@pytest.mark.parametrize("layout", ["challenge", "ssl4mis"])
def test_acdc_counts_and_patients_come_out_of_the_cache(caches, layout):
    cache = caches[layout]
    patients = {case.patient for case in cache.cases}
    assert len(patients) == 80
    for ratio, count, who in (
        (0.01, 32, {99}),
        (0.05, 68, {99, 38, 50}),
        (0.10, 136, {99, 38, 50, 100, 58, 21, 49}),
    ):
        found = split(cache, ratio)
        assert len(found.labelled) == count
        assert len(found.labelled) + len(found.unlabelled) == 1312
        assert {int(p.removeprefix("patient")) for p in found.labelled_patients} == who
        owners = {case.name: case.patient for case in cache.cases}
        val = {owners[name] for name in found.val}
        assert len(val) == 10
        assert not val & {*found.labelled_patients, *found.unlabelled_patients}


def test_both_layouts_agree(caches):
    a, b = caches["challenge"], caches["ssl4mis"]
    assert [case.name for case in a.cases] == [case.name for case in b.cases]
    np.testing.assert_array_equal(a.labels, b.labels)
    worst = max(np.abs(x.astype(np.int32) - y).max() for x, y in zip(a.images, b.images, strict=True))
    assert worst <= STEPS / 255  # one grey level of the 8-bit source


def test_the_two_names_of_one_heart_are_never_parted(caches):
    for seed in range(30):
        found = split(caches["challenge"], 0.3, seed)
        sides = [{"patient074", "patient076"} & set(p) for p in (found.labelled_patients, found.unlabelled_patients)]
        assert sorted(map(len, sides)) == [0, 2]


def test_hippocampus_prepares_without_a_word(tmp_path):
    if not HIPPOCAMPUS.exists():
        pytest.skip(f"real Hippocampus is not at {HIPPOCAMPUS}")
    with tarfile.open(HIPPOCAMPUS) as archive:
        archive.extractall(tmp_path, filter="data")
    cache = prepare(*locate(str(tmp_path / "Task04_Hippocampus"), None), tmp_path / "cache")
    assert len(cache.cases) == 200
    assert [c.name for c in cache.task.classes] == ["background", "Anterior", "Posterior"]
    assert len(split(cache, 0.05).labelled_patients) == 8  # a twentieth of the 170 left for training
    assert len(split(cache).val) == 30
