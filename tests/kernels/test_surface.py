"""Surface distances against medpy on random masks, and against closed forms where geometry knows the answer."""

import numpy as np
import pytest
from helpers.random_masks import random_mask
from medpy.metric import binary as medpy

from mona_infer.evaluation.metrics import score_case

PAIRS = 320


def random_pair(seed):
    """Noise, blobs, single voxels and slabs that touch the borders, at random anisotropic spacing."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 24, 3))
    spacing = tuple(float(s) for s in rng.uniform(0.3, 10, 3))
    return random_mask(rng, shape), random_mask(rng, shape), spacing


def test_random_pairs_equal_medpy():
    compared = empty = 0
    for seed in range(PAIRS):
        a, b, spacing = random_pair(seed)
        for first, second in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            score = score_case(first, second, spacing, [1])[1]
            if not (a.any() and b.any()):
                assert score.assd is None
                empty += 1
                continue
            assert score.dsc == pytest.approx(medpy.dc(a, b), abs=1e-12)
            assert score.jaccard == pytest.approx(medpy.jc(a, b), abs=1e-12)
            assert score.asd == pytest.approx(medpy.asd(a, b, spacing), abs=1e-6)
            assert score.assd == pytest.approx(medpy.assd(a, b, spacing), abs=1e-6)
            assert score.hd95 == pytest.approx(medpy.hd95(a, b, spacing), abs=1e-6)
            assert score.hd == pytest.approx(medpy.hd(a, b, spacing), abs=1e-6)
            assert score.sensitivity == pytest.approx(medpy.sensitivity(a, b), abs=1e-12)
            assert score.precision == pytest.approx(medpy.precision(a, b), abs=1e-12)
            compared += 1
    assert compared >= 2 * 280  # the rest are the pairs with an empty mask, which medpy refuses
    assert empty > 0


def test_random_pairs_equal_monai():
    """Surface Dice and Hausdorff; MONAI's HD95 is another: the larger of the two directions' percentiles."""
    torch, metrics = pytest.importorskip("torch"), pytest.importorskip("monai.metrics", reason="MONAI is not installed")
    compared = differ = 0
    for seed in range(0, PAIRS, 4):
        a, b, spacing = random_pair(seed)
        if not (a.any() and b.any()):
            continue
        given = [torch.from_numpy(mask[None, None].astype(np.float32)) for mask in (a, b)]
        for tolerance in (0.0, 1.3, 4.0):
            found = metrics.compute_surface_dice(*given, [tolerance], include_background=True, spacing=spacing)
            score = score_case(a, b, spacing, tolerance=tolerance)[1]
            assert score.nsd == pytest.approx(float(found), abs=1e-6), (seed, tolerance)
        found = metrics.compute_hausdorff_distance(*given, include_background=True, spacing=spacing)
        assert score.hd == pytest.approx(float(found), rel=1e-5)
        found = metrics.compute_hausdorff_distance(*given, include_background=True, percentile=95, spacing=spacing)
        differ += abs(float(found) - score.hd95) > 1e-3
        assert float(found) > score.hd95 - 1e-3  # of the whole, never more than of its worse part
        compared += 1
    assert compared >= 60
    assert differ > 0


def test_large_pair_equals_medpy_with_every_number_of_threads():
    rng = np.random.default_rng(5)
    grid = np.meshgrid(*[np.linspace(-1, 1, n) for n in (40, 96, 80)], indexing="ij")
    radius = np.sqrt(sum(g**2 for g in grid))
    a, b = ((radius + rng.normal(0, 0.02, radius.shape) < r).astype(np.uint8) for r in (0.6, 0.7))
    scores = [score_case(a, b, (2.5, 0.7, 0.9), threads=threads)[1] for threads in (1, 2, 5)]
    assert scores[0] == scores[1] == scores[2]
    assert scores[0].assd == pytest.approx(medpy.assd(a, b, (2.5, 0.7, 0.9)), abs=1e-9)
    assert scores[0].hd95 == pytest.approx(medpy.hd95(a, b, (2.5, 0.7, 0.9)), abs=1e-9)


def test_parallel_plates_are_as_far_apart_as_they_are():
    a, b = np.zeros((30, 8, 9), np.uint8), np.zeros((30, 8, 9), np.uint8)
    a[4], b[21] = 1, 1
    score = score_case(a, b, (2.5, 1.0, 1.0))[1]
    assert (score.asd, score.assd, score.hd95) == (42.5, 42.5, 42.5)
    assert score.dsc == 0


def test_a_box_inside_a_box():
    """Faces 3 voxels apart: a border voxel of the inner box is 3 steps from the outer one, straight out."""
    a, b = np.zeros((40, 40, 40), np.uint8), np.zeros((40, 40, 40), np.uint8)
    a[10:30, 10:30, 10:30] = 1
    b[7:33, 7:33, 7:33] = 1
    score = score_case(a, b, (2.0, 2.0, 2.0))[1]
    assert score.asd == 6.0
    assert score.dsc == pytest.approx(2 * 20**3 / (20**3 + 26**3))
    assert score.jaccard == pytest.approx(20**3 / 26**3)
    assert score.hd95 > 6.0  # the outer corners are farther than the faces


@pytest.mark.parametrize("radius", [12, 20])
def test_concentric_spheres(radius):
    """The gap of two spheres is the difference of radii, up to what a voxel grid can say (half a voxel)."""
    grid = np.meshgrid(*[np.arange(64) - 31.5] * 3, indexing="ij")
    distance = np.sqrt(sum(g**2 for g in grid))
    a, b = (distance <= radius).astype(np.uint8), (distance <= radius + 5).astype(np.uint8)
    score = score_case(a, b, (1.5, 1.5, 1.5))[1]
    assert score.asd == pytest.approx(5 * 1.5, abs=0.75)
    assert score.assd == pytest.approx(5 * 1.5, abs=0.75)
    assert score.dsc == pytest.approx(2 * radius**3 / (radius**3 + (radius + 5) ** 3), rel=0.02)


def test_identical_masks_have_no_distance():
    mask = (np.random.default_rng(0).random((9, 20, 20)) < 0.3).astype(np.uint8)
    score = score_case(mask, mask.copy(), (10, 1.4, 1.4))[1]
    assert (score.dsc, score.jaccard, score.asd, score.assd, score.hd95, score.hd, score.nsd) == (1, 1, 0, 0, 0, 0, 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_each_class_of_a_label_map_equals_its_own_binary_mask(dtype):
    rng = np.random.default_rng(7)
    ids = [1, 2, 7, 255] if dtype == np.uint8 else [1, 256, 7000, 65535]
    a, b = (rng.choice([0, 0, 0, *ids], (8, 15, 14)).astype(dtype) for _ in range(2))
    together = score_case(a, b, (5, 1, 2))
    assert list(together) == ids
    for label in ids:
        alone = score_case((a == label).astype(np.uint8), (b == label).astype(np.uint8), (5, 1, 2))
        assert together[label] == alone[1]
