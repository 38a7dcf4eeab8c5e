"""Distances on grids whose axes are not at right angles, against scipy's k-d tree over the voxels' places in space."""

import numpy as np
import pytest
from helpers.random_masks import random_mask
from scipy.ndimage import binary_erosion, generate_binary_structure
from scipy.spatial import cKDTree

from mona_infer import Volume
from mona_infer.evaluation.metrics import score_case
from mona_kernels import native

PAIRS = 120
CROSS = generate_binary_structure(3, 1)


def places(mask, steps):
    """World millimetres of the border voxels: the rows of `steps` lead from a voxel to the next along each axis."""
    border = mask & ~binary_erosion(mask, CROSS, border_value=0)
    return np.argwhere(border) @ steps


def expected(a, b, steps):
    in_a, in_b = places(a.astype(bool), steps), places(b.astype(bool), steps)
    return cKDTree(in_b).query(in_a)[0], cKDTree(in_a).query(in_b)[0]


def random_steps(rng):
    while True:
        steps = np.diag(rng.uniform(0.3, 8, 3)) @ (np.eye(3) + rng.uniform(-0.6, 0.6, (3, 3)))
        if not native.at_right_angles(steps) and abs(np.linalg.det(steps)) > 0.05:
            return steps


def test_random_pairs_on_sheared_grids_equal_scipy():
    compared = 0
    for seed in range(PAIRS):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(1, 24, 3))
        a, b, steps = random_mask(rng, shape), random_mask(rng, shape), random_steps(rng)
        if not (a.any() and b.any()):
            continue
        there, back = expected(a, b, steps)
        both = np.concatenate([there, back])
        for first, second in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            score = score_case(first, second, steps, [1])[1]
            assert score.asd == pytest.approx(there.mean(), abs=1e-9)
            assert score.assd == pytest.approx(both.mean(), abs=1e-9)
            assert score.hd95 == pytest.approx(np.percentile(both, 95), abs=1e-9)
        compared += 1
    assert compared > 100


def test_a_large_pair_is_exact_and_the_same_with_every_number_of_threads():
    grid = np.meshgrid(*[np.linspace(-1, 1, n) for n in (40, 96, 80)], indexing="ij")
    radius = np.sqrt(sum(g**2 for g in grid))
    noise = np.random.default_rng(5).normal(0, 0.02, radius.shape)
    a, b = (radius + noise < 0.6).astype(np.uint16), (radius < 0.7).astype(np.uint16)
    steps = np.array([[0, 0.9, 2.4], [0, 0.7, 0], [0.9, 0, 0]])  # slices shifted against each other: gantry tilt
    found = native.overlaps(a, b)[1]
    results = [native.surface_distances(a, b, 1, found, steps, threads=threads) for threads in (1, 2, 5)]
    for result in results[1:]:
        for mine, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(mine, first)
    for mine, theirs in zip(results[0], expected(a, b, steps), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-9)


def test_the_spacing_alone_would_be_wrong():
    """A slab and a copy of it four slices up, sheared by 30 degrees: nearer than four times the step's length."""
    a, b = np.zeros((20, 30, 30), np.uint8), np.zeros((20, 30, 30), np.uint8)
    a[4], b[8] = 1, 1
    steps = np.array([[0, 2.5, 2.5 * np.sqrt(3)], [0, 1, 0], [1, 0, 0]])
    true, lengths = score_case(a, b, steps)[1], score_case(a, b, native.step_lengths(steps))[1]
    assert lengths.asd == 20.0
    assert 10 * np.sqrt(3) <= true.asd < 18.5


def test_a_grid_at_right_angles_keeps_its_numbers_to_the_bit():
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b = random_mask(rng, (9, 12, 11)), random_mask(rng, (9, 12, 11))
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        affine = np.eye(4)
        affine[:3, :3] = (turn * rng.uniform(0.3, 8, 3)).astype(np.float32)  # rounded, as in a header
        volume = Volume(a, affine)
        assert native.at_right_angles(volume.steps)
        assert native.step_lengths(volume.steps) == volume.spacing
        assert score_case(a, b, volume.steps, [1]) == score_case(a, b, volume.spacing, [1])


def test_the_diagonal_of_a_sheared_volume_joins_its_farthest_corners():
    affine = np.array([[1.0, 0, 0, 0], [0, 1, 0.8, 0], [0, 0, 2, 0], [0, 0, 0, 1]])
    volume = Volume(np.zeros((10, 20, 30), np.uint8), affine)
    assert volume.diagonal == pytest.approx(np.sqrt(10**2 + (20 + 0.8 * 30) ** 2 + 60**2))


def test_evaluate_measures_in_true_geometry(tmp_path):
    """It was 25.91 mm by column lengths where 24.82 mm is true, of one such pair."""
    import json

    from mona_infer.cli.main import app
    from mona_infer.io.nifti import write_mask

    rng = np.random.default_rng(0)
    affine = np.array([[-0.8, 0, 0, 10], [0, 0.8, 1.8, 20], [0, 0, 4.6, 30], [0, 0, 0, 1.0]])
    a, b = random_mask(rng, (30, 28, 12)), random_mask(rng, (30, 28, 12))
    for name, mask in (("a", a), ("b", b)):
        write_mask(tmp_path / f"{name}.nii.gz", Volume(np.asfortranarray(mask), affine))
    where = tmp_path / "report.json"
    app(["evaluate", *(str(tmp_path / f"{n}.nii.gz") for n in "ab"), "--json", str(where)], standalone_mode=False)
    score = json.loads(where.read_text())["cases"][0]["classes"]["1"]
    there, back = expected(a, b, affine[:3, :3].T)
    assert score["asd"] == pytest.approx(there.mean(), abs=1e-6)
    assert score["assd"] == pytest.approx(np.concatenate([there, back]).mean(), abs=1e-6)
