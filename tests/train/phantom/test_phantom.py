"""The phantom: reproducible, split by patient, and shaped like the ACDC data it stands in for."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from mona_train.phantom import FRAMES, LV, MYO, RV, PhantomCase, heart, phantom

ACDC = np.array([96.16, 1.21, 1.34, 1.29])  # per cent of voxels that are background, RV, Myo, LV


@pytest.fixture(scope="module")
def cases() -> list[PhantomCase]:
    return list(phantom(seed=0, train=7, val=1, test=2))


def same(a: PhantomCase, b: PhantomCase) -> bool:
    return (
        a.image.voxels.tobytes() == b.image.voxels.tobytes()
        and a.label.voxels.tobytes() == b.label.voxels.tobytes()
        and np.array_equal(a.image.affine, b.image.affine)
    )


def counts(case: PhantomCase) -> NDArray[np.int64]:
    return np.bincount(case.label.voxels.ravel(), minlength=4)


def neighbours(mask: NDArray[np.bool_], label: NDArray[np.uint8]) -> set[int]:
    """The labels met on stepping once in plane (i, j) from a voxel of `mask`."""
    steps = ((1, 0), (-1, 0), (1, 1), (-1, 1))
    return set(np.concatenate([np.unique(np.roll(label, -s, a)[mask]) for s, a in steps]).tolist())


def test_a_case_depends_on_seed_patient_and_frame_alone(cases: list[PhantomCase]) -> None:
    seventh = cases[12:14]
    for frame, case in zip(FRAMES, seventh, strict=True):
        assert same(heart(7, frame, seed=0), case)
        assert not same(heart(7, frame, seed=1), case)
        assert not same(heart(6, frame, seed=0), case)


def test_patients_do_not_depend_on_the_size_of_the_set(cases: list[PhantomCase]) -> None:
    few = list(phantom(seed=0, train=1, val=0, test=2))
    assert all(same(a, b) for a, b in zip(few, cases[:6], strict=True))
    assert [c.split for c in few] == ["train"] * 2 + ["test"] * 4


def test_splits_hold_whole_patients(cases: list[PhantomCase]) -> None:
    patients = {s: {c.patient for c in cases if c.split == s} for s in ("train", "val", "test")}
    assert {s: len(p) for s, p in patients.items()} == {"train": 7, "val": 1, "test": 2}
    assert len(set.union(*patients.values())) == 10
    assert [c.name for c in cases[:3]] == ["patient001_frame01", "patient001_frame02", "patient002_frame01"]
    assert len({c.name for c in cases}) == 20


def test_the_set_is_made_lazily() -> None:
    started = time.perf_counter()
    first = next(phantom(train=10**6))
    assert first.name == "patient001_frame01"
    assert time.perf_counter() - started < 2


def test_voxels_are_stored_as_a_scanner_would(cases: list[PhantomCase]) -> None:
    for case in cases:
        assert case.image.voxels.dtype == np.int16
        assert case.label.voxels.dtype == np.uint8
        assert case.image.voxels.flags.f_contiguous and case.label.voxels.flags.f_contiguous
        assert case.image.voxels.min() >= 0
        assert set(np.unique(case.label.voxels)) == {0, RV, MYO, LV}
        i, j, k = case.image.shape
        assert 112 <= i <= 160 and 112 <= j <= 160 and 7 <= k <= 11
        across, down, through = case.image.spacing
        assert across == pytest.approx(down) and 1.4 <= across <= 1.9 and 8 <= through <= 10
    peaks = [np.percentile(c.image.voxels, 99) for c in cases]
    assert max(peaks) > 2 * min(peaks)


def test_the_affine_is_oblique_and_differs_between_patients(cases: list[PhantomCase]) -> None:
    axes = [c.image.affine[:3, :3] / c.image.spacing for c in cases[::2]]
    for a in axes:
        np.testing.assert_allclose(a.T @ a, np.eye(3), atol=1e-9)
        assert np.abs(a[:, 2]).min() > 0.2  # the slice normal leans on all three world axes
    tilt = [np.degrees(np.arccos(a[:, 2] @ b[:, 2])) for a, b in pairwise(axes)]
    assert 1 < np.median(tilt) < 20


def test_frames_share_grid_and_anatomy_but_not_noise(cases: list[PhantomCase]) -> None:
    for diastole, systole in zip(cases[::2], cases[1::2], strict=True):
        assert diastole.image.shape == systole.image.shape == systole.label.shape
        assert np.array_equal(diastole.image.affine, systole.image.affine)
        a, b = (c.image.voxels.astype(float)[..., 3] for c in (diastole, systole))
        corner = np.s_[:12, :12]
        assert not np.array_equal(a[corner], b[corner])
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.6


def test_the_heart_beats(cases: list[PhantomCase]) -> None:
    ejection = []
    for diastole, systole in zip(cases[::2], cases[1::2], strict=True):
        before, after = counts(diastole), counts(systole)
        ejection.append(1 - after[LV] / before[LV])
        assert after[RV] < before[RV]
        assert after[MYO] == pytest.approx(before[MYO], rel=0.25)  # muscle keeps its volume: the wall thickens
    assert 0.12 < min(ejection) < 0.35 and 0.5 < max(ejection) < 0.8


def test_classes_have_the_proportions_of_acdc(cases: list[PhantomCase]) -> None:
    total = np.sum([counts(c) for c in cases], axis=0)
    percent = 100 * total / total.sum()
    # The field of view is smaller than ACDC's, hence up to twice its foreground; the ratios are ACDC's.
    assert np.all(percent[1:] > 0.65 * ACDC[1:]) and np.all(percent[1:] < 2 * ACDC[1:])
    np.testing.assert_allclose(percent[1:] / percent[LV], ACDC[1:] / ACDC[LV], rtol=0.2)


def test_slices_have_a_long_tail(cases: list[PhantomCase]) -> None:
    present = {v: [np.flatnonzero((c.label.voxels == v).any(axis=(0, 1))) for c in cases] for v in (RV, MYO, LV)}
    empty = [c.image.shape[2] - len(m) for c, m in zip(cases, present[MYO], strict=True)]
    assert sum(e > 0 for e in empty) > len(cases) // 4
    # A long heart may leave the stack before its apex: most cases, not all.
    above_apex = [rv.max() < myo.max() for rv, myo in zip(present[RV], present[MYO], strict=True)]
    assert np.mean(above_apex) > 0.7
    areas = [(c.label.voxels == LV).sum(axis=(0, 1)) for c in cases]
    tips = [a[lv.max()] / a.max() for a, lv in zip(areas, present[LV], strict=True)]
    assert np.median(tips) < 0.35
    for case, rv in zip(cases, present[RV], strict=True):
        area = (case.label.voxels == RV).sum(axis=(0, 1))[rv]
        assert area[0] > 2 * area[-1], case.name  # large at the base


def test_the_ring_is_closed_below_the_base(cases: list[PhantomCase]) -> None:
    for case in cases:
        slices = np.flatnonzero((case.label.voxels == LV).any(axis=(0, 1)))
        for k in slices[2:]:
            label = case.label.voxels[..., k]
            assert neighbours(label == LV, label) <= {LV, MYO}, (case.name, k)


def test_the_rv_leans_on_the_septum_and_everything_is_in_view(cases: list[PhantomCase]) -> None:
    for case in cases:
        label = case.label.voxels
        for k in np.flatnonzero((label == RV).sum(axis=(0, 1)) > 20):
            assert MYO in neighbours(label[..., k] == RV, label[..., k]), (case.name, k)
        assert not label[[0, -1]].any() and not label[:, [0, -1]].any(), case.name


def test_intensity_alone_does_not_separate_the_pool(cases: list[PhantomCase]) -> None:
    alike = []
    for case in cases:
        image, label = case.image.voxels, case.label.voxels
        assert np.median(image[label == LV]) > np.median(image[label == MYO]), case.name
        dim, bright = np.percentile(image[label == LV], [10, 90])
        alike.append(np.mean((image[label == 0] >= dim) & (image[label == 0] <= bright)) / np.mean(label == LV))
    assert np.median(alike) > 1.5  # outside the heart, more of the pool's brightness than in the pool


def test_it_is_fast() -> None:
    heart(1, "ED")
    started = time.process_time()
    for patient in range(2, 6):
        heart(patient, "ES")
    assert (time.process_time() - started) / 4 < 0.6  # 0.1 s on one idle core
