"""The cache: what it holds, that it is found again, and that no kill can spoil it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers.dataset_files import nnunet, save, scan

from mona_infer import InputError, Volume, read_volume
from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC
from mona_kernels import native
from mona_train.data import prepare as module
from mona_train.data.adapters import adapter_named
from mona_train.data.cache import Cache
from mona_train.data.case import Adapter, Case
from mona_train.data.prepare import STEPS, prepare

pytestmark = pytest.mark.xdist_group("prepare")  # one worker makes the uninterrupted cache once

TASK = replace(CARDIAC, name="tiny", size=(32, 48))
MONA = Path(sys.executable).with_name("mona")


def tiny(folder, patients=5, *, unlabelled=()):
    """A dataset of small volumes with thick slices."""
    rng = np.random.default_rng(3)
    affine = np.diag([1.5, -1.4, 9.0, 1.0])
    affine[:3, 3] = 4, 5, 6
    for n in range(patients):
        image = rng.integers(0, 900, (20, 26, 4 + n % 3)).astype(np.int16)
        label = rng.integers(0, 4, image.shape).astype(np.uint8)
        nib.save(nib.Nifti1Image(image, affine), folder / f"p{n}.nii.gz")
        if n not in unlabelled:
            nib.save(nib.Nifti1Image(label, affine), folder / f"p{n}_gt.nii.gz")


def find(folder):
    cases = []
    for image in sorted(folder.glob("p?.nii.gz")):
        name = image.name.removesuffix(".nii.gz")
        label = folder / f"{name}_gt.nii.gz"
        files = (image, label) if label.exists() else (image,)
        reader = (lambda p=label: read_volume(p)) if label.exists() else None
        cases.append(Case(name, name, files, lambda p=image: read_volume(p), reader))
    return cases


ADAPTER = Adapter("tiny", "Tiny", lambda f: True, lambda f: TASK, find, "nowhere", "none", "p0.nii.gz")


@pytest.fixture
def source(tmp_path):
    (tmp_path / "raw").mkdir()
    tiny(tmp_path / "raw", unlabelled=(3,))
    return tmp_path / "raw"


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_slices_are_those_of_the_task(source, tmp_path):
    cache = prepare(ADAPTER, source, tmp_path / "cache")
    assert cache.task == TASK
    assert cache.images.shape == (4 + 5 + 6 + 4 + 5, 32, 48)
    assert len(cache.labels) == len(cache.images) - 4
    for case in cache.cases:
        volume = read_volume(source / f"{case.name}.nii.gz")
        stack = SliceStack(volume, TASK)
        rows = list(case.rows)
        np.testing.assert_allclose(cache.images[rows] / STEPS, stack.read(0, len(stack)), atol=0.5 / STEPS + 1e-7)
        if case.name == "p3":
            assert case.first_label is None
            continue
        label = read_volume(source / f"{case.name}_gt.nii.gz")
        expected = native.resize(np.ascontiguousarray(stack.slicing.view(label.voxels)), TASK.size, order=0)
        np.testing.assert_array_equal(cache.labels[list(case.label_rows.values())], expected)
        assert case.voxels == tuple(np.bincount(label.voxels.ravel(), minlength=4))
        assert case.spacing == pytest.approx((9.0, 1.4, 1.5))


def test_a_second_call_finds_it_done(source, tmp_path, monkeypatch):
    prepare(ADAPTER, source, tmp_path / "cache")
    before = contents(tmp_path / "cache")
    monkeypatch.setattr(module, "_shard", None)  # would fail if a case were read again
    prepare(ADAPTER, source, tmp_path / "cache")
    assert contents(tmp_path / "cache") == before
    assert {p.name for p in tmp_path.iterdir()} == {"raw", "cache", "cache.lock"}


@pytest.mark.parametrize("change", ["file", "task", "case"])
def test_what_changed_is_prepared_again(source, tmp_path, change):
    prepare(ADAPTER, source, tmp_path / "cache")
    adapter = ADAPTER
    if change == "file":
        image = np.full((20, 26, 4), 7, np.int16)
        image[0] = 3
        nib.save(nib.Nifti1Image(image, read_volume(source / "p0.nii.gz").affine), source / "p0.nii.gz")
    elif change == "case":
        (source / "p4.nii.gz").unlink()
    else:
        adapter = replace(ADAPTER, task=lambda f: replace(TASK, size=(16, 16)))
    after = prepare(adapter, source, tmp_path / "cache")
    fresh = prepare(adapter, source, tmp_path / "fresh")
    np.testing.assert_array_equal(after.images, fresh.images)
    assert after.cases == fresh.cases


def test_touching_a_file_is_no_change(source, tmp_path, monkeypatch):
    prepare(ADAPTER, source, tmp_path / "cache")
    os.utime(source / "p0.nii.gz")
    monkeypatch.setattr(module, "_shard", None)
    prepare(ADAPTER, source, tmp_path / "cache")


@pytest.mark.parametrize("odd", ["grid", "label", "nan"])
def test_a_bad_case_stops_with_its_name_and_leaves_no_cache(source, tmp_path, odd):
    good = read_volume(source / "p1_gt.nii.gz")
    if odd == "grid":
        nib.save(nib.Nifti1Image(good.voxels, good.affine + np.eye(4) * 3), source / "p1_gt.nii.gz")
    elif odd == "label":
        nib.save(nib.Nifti1Image(np.full(good.shape, 9, np.uint8), good.affine), source / "p1_gt.nii.gz")
    else:
        nib.save(nib.Nifti1Image(np.full(good.shape, np.nan, np.float32), good.affine), source / "p1.nii.gz")
    with pytest.raises(InputError, match="p1"):
        prepare(ADAPTER, source, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_an_interrupted_preparation_reads_only_what_is_missing(source, tmp_path, monkeypatch):
    whole = contents(prepare(ADAPTER, source, tmp_path / "whole").folder)
    read = []

    def reader(case, fail):
        def image() -> Volume:
            if fail and case.name == "p4":
                raise InputError("stop here")
            read.append(case.name)
            return case.image()

        return replace(case, image=image)

    failing = replace(ADAPTER, cases=lambda f: [reader(c, True) for c in find(f)])
    with pytest.raises(InputError, match="stop here"):
        prepare(failing, source, tmp_path / "cache")
    done = set(read)
    read.clear()
    again = replace(ADAPTER, cases=lambda f: [reader(c, False) for c in find(f)])
    prepare(again, source, tmp_path / "cache")
    assert set(read) == {"p0", "p1", "p2", "p3", "p4"} - done
    assert contents(tmp_path / "cache") == whole


@pytest.mark.parametrize("there", ["folder", "file"])
def test_what_is_not_a_cache_is_never_replaced(source, tmp_path, there):
    mine = tmp_path / "thesis"
    if there == "folder":
        mine.mkdir()
        (mine / "chapter1.txt").write_text("years of work")
    else:
        mine.write_text("years of work")
    with pytest.raises(InputError, match="is not a prepared data set"):
        prepare(ADAPTER, source, mine)
    assert (mine / "chapter1.txt" if there == "folder" else mine).read_text() == "years of work"


@pytest.mark.parametrize("spoil", ["manifest", "images", "labels"])
def test_a_damaged_cache_is_named(source, tmp_path, spoil):
    folder = prepare(ADAPTER, source, tmp_path / "cache").folder
    path = next(folder.glob(f"{spoil}.*"))
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match="cache"):
        Cache.open(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A data set that takes a while, its cache made without interruption, and how long that took."""
    folder = tmp_path_factory.mktemp("whole")
    raw = folder / "Dataset007_Kill"
    for name in ("imagesTr", "labelsTr"):
        (raw / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    affine = np.diag([1.0, 1.0, 8.0, 1.0])
    for n in range(24):
        image = rng.integers(0, 900, (160, 150, 12)).astype(np.int16)
        nib.save(nib.Nifti1Image(image, affine), raw / "imagesTr" / f"case{n:02d}_0000.nii.gz")
        nib.save(nib.Nifti1Image((image > 500).astype(np.uint8), affine), raw / "labelsTr" / f"case{n:02d}.nii.gz")
    labels = {"background": 0, "bright": 1}
    facts = {"channel_names": {"0": "MRI"}, "labels": labels, "numTraining": 24, "file_ending": ".nii.gz"}
    (raw / "dataset.json").write_text(json.dumps(facts))
    start = time.monotonic()
    subprocess.run([MONA, "data", "prepare", raw, "--out", folder / "cache"], check=True, capture_output=True)
    return raw, contents(folder / "cache"), time.monotonic() - start


@pytest.mark.parametrize("kill", [pytest.param(n, marks=[pytest.mark.full] if n >= 3 else []) for n in range(20)])
def test_killed_at_any_moment_and_repeated(whole, tmp_path, kill):
    """SIGKILL `mona data prepare`, repeat it, and compare every byte with the uninterrupted run."""
    raw, expected, seconds = whole
    command = [MONA, "data", "prepare", raw, "--out", tmp_path / "cache"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.Random(kill).uniform(0.25, 1.0) * seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if (tmp_path / "cache").exists():  # if it is there at all, it is whole
        assert contents(tmp_path / "cache") == expected
    subprocess.run(command, check=True, capture_output=True)
    assert contents(tmp_path / "cache") == expected
    assert {p.name for p in tmp_path.iterdir()} == {"cache", "cache.lock"}


def test_killed_while_it_replaces_an_older_cache(tmp_path, monkeypatch):
    """The older one is there or is gone, as a whole: half of it would be refused from then on."""
    folder, real = tmp_path / "cache", module.shutil.rmtree

    def killed(path, **more):
        if path == folder:
            (folder / "manifest.json").unlink()
            raise KeyboardInterrupt
        real(path, **more)

    (tmp_path / "raw").mkdir()
    tiny(tmp_path / "raw", patients=2)
    prepare(ADAPTER, tmp_path / "raw", folder)
    monkeypatch.setattr(module.shutil, "rmtree", killed)
    with contextlib.suppress(KeyboardInterrupt):
        prepare(ADAPTER, tmp_path / "raw", folder, (16, 16))
    cache = prepare(ADAPTER, tmp_path / "raw", folder, (16, 16))
    assert cache.images.shape[1:] == (16, 16)
    assert {p.name for p in tmp_path.iterdir()} == {"raw", "cache", "cache.lock"}


@pytest.mark.parametrize("step", ["older", "newer"])
def test_killed_between_the_two_renames(tmp_path, monkeypatch, step):
    folder, real = tmp_path / "cache", Path.rename

    def killed(path, target):
        if step == "newer" and Path(target) == folder:
            raise KeyboardInterrupt
        moved = real(path, target)
        if step == "older" and path == folder:
            raise KeyboardInterrupt
        return moved

    (tmp_path / "raw").mkdir()
    tiny(tmp_path / "raw", patients=2)
    prepare(ADAPTER, tmp_path / "raw", folder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        prepare(ADAPTER, tmp_path / "raw", folder, (16, 16))
    cache = prepare(ADAPTER, tmp_path / "raw", folder, (16, 16))
    assert cache.images.shape[1:] == (16, 16)
    assert {p.name for p in tmp_path.iterdir()} == {"raw", "cache", "cache.lock"}


def test_a_class_that_the_size_of_the_slices_loses_is_named(tmp_path, capsys):
    nnunet(tmp_path / "raw", names=("a", "b"))
    image, label = scan(1, (64, 64, 5)), np.zeros((64, 64, 5), np.uint8)
    label[31, 31, 2] = 1
    save(tmp_path / "raw" / "imagesTr" / "b_0000.nii.gz", image)
    save(tmp_path / "raw" / "labelsTr" / "b.nii.gz", label)
    for size, said in (
        (64, ""),
        (16, "left atrium is too small for slices of 16x16 and vanishes in 1 volumes: b"),
    ):
        prepare(adapter_named("folder"), tmp_path / "raw", tmp_path / f"cache{size}", (size, size))
        assert capsys.readouterr().err.partition("warning: ")[2].strip() == said
    prepare(adapter_named("folder"), tmp_path / "raw", tmp_path / "cache16", (16, 16))
    assert capsys.readouterr() == (f"using {tmp_path / 'cache16'}, which is already prepared\n", "")
