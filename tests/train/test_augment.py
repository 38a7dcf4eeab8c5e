"""Augmentation: maps of a view move together, are resampled once, and each part does what method 5 and 4.4 say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import Generator, Tensor

from mona_train.augment import (
    ACR,
    GLCON,
    Equivariance,
    Geometry,
    Strength,
    apply_jitter,
    cutmix,
    diffeo,
    draw_jitter,
    equivariance,
    jitter,
    matrices,
    weak,
)
from mona_train.augment.blur import gaussian_blur
from mona_train.augment.diffeo import KNOTS, integrate, spread
from mona_train.augment.equivariance import CONTROLS

SIZES = [(256, 256), (64, 64), (48, 80), (63, 41)]
Draw = Callable[[Generator, int, tuple[int, int]], Geometry]
CHAINS: dict[str, Draw] = {
    "weak": weak,
    "diffeo": lambda g, n, size: diffeo(g, n, probability=1),
    "equivariance": equivariance,
    "weak, diffeo": lambda g, n, size: weak(g, n, size).then(diffeo(g, n, probability=1)),
    "all": lambda g, n, size: weak(g, n, size).then(diffeo(g, n, probability=1)).then(equivariance(g, n, size)),
}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(count: int, size: tuple[int, int], seed: int = 0) -> Tensor:
    """Labels 0..3 (B, H, W), uint8: smooth regions of many pixels."""
    rough = torch.rand(count, 4, 5, 5, generator=seeded(seed))
    return F.interpolate(rough, size, mode="bicubic", align_corners=True).argmax(1).to(torch.uint8)


def batch(count: int, size: tuple[int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = seeded(seed)
    return torch.rand(count, 1, *size, generator=generator), blobs(count, size, seed), torch.rand(count, *size)


def pixels(points: Tensor) -> Tensor:
    """Points or displacements (..., 2, H, W) of a view in its own pixels."""
    height, width = points.shape[-2:]
    return points * torch.tensor([(width - 1) / 2, (height - 1) / 2]).to(points)[:, None, None]


def jacobian(points: Tensor) -> Tensor:
    right = (points[..., :-1, 1:] - points[..., :-1, :-1]).double()
    down = (points[..., 1:, :-1] - points[..., :-1, :-1]).double()
    area = 4 / ((points.shape[-1] - 1) * (points.shape[-2] - 1))
    return (right[:, 0] * down[:, 1] - right[:, 1] * down[:, 0]) / area


def within(labels: Tensor) -> Tensor:
    """Pixels of one class with all eight neighbours: whatever is interpolated around them sees that class alone."""
    values = labels[:, None].float()
    return (F.max_pool2d(values, 3, 1, 1) == -F.max_pool2d(-values, 3, 1, 1))[:, 0]


# --- maps move together, once


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chain", CHAINS)
def test_what_is_painted_under_a_label_stays_under_it(chain: str, size: tuple[int, int]) -> None:
    labels = blobs(16, size)
    grid = CHAINS[chain](seeded(3), 16, size).grid(size)
    sound = grid.nearest(within(labels))
    assert sound.float().mean() > 0.4
    for painted in (1, 2, 3):
        view = grid.apply((labels == painted)[:, None].float(), labels)
        error = (view.images[:, 0] - (view.labels == painted).float()).abs()[sound]
        assert error.max() < 2e-3  # what counts as inside may fade by 1e-3 at the frame's edge
        wrong = ((view.images[:, 0] > 0.5) != (view.labels == painted)) & view.inside
        assert wrong.float().mean() < 0.02  # interpolation, at borders
        assert (view.labels == painted).any()


def test_the_painted_test_sees_a_label_left_behind() -> None:
    """As published (difference 10), with the image warped alone, the check above fails."""
    labels = blobs(16, (256, 256))
    images = diffeo(seeded(3), 16, probability=1).apply((labels == 1)[:, None].float()).images
    assert ((images[:, 0] - (labels == 1).float()).abs() > 0.5)[within(labels)].sum() > 100


@pytest.mark.parametrize("chain", CHAINS)
def test_a_view_is_resampled_once(chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels, confidence = batch(6, (40, 56))
    calls: list[str] = []
    sample = F.grid_sample

    def counted(maps: Tensor, points: Tensor, mode: str = "bilinear", *rest: str, **options: object) -> Tensor:
        if maps.shape[-2:] == images.shape[-2:] and "border" not in options.values():  # not a displacement field
            calls.append(mode)
        return sample(maps, points, mode, *rest, **options)

    geometry = CHAINS[chain](seeded(1), 6, (40, 56))
    monkeypatch.setattr(F, "grid_sample", counted)
    geometry.apply(images, labels, confidence)
    assert sorted(calls) == ["bilinear", "nearest"]  # image and confidence share one call


@pytest.mark.parametrize("chain", CHAINS)
def test_labels_are_only_those_that_were_there_and_confidence_stays_a_probability(chain: str) -> None:
    size = (48, 80)
    labels = torch.where(blobs(8, size) > 1, 200, 7).to(torch.uint8)
    ones = torch.ones(8, *size)
    view = CHAINS[chain](seeded(5), 8, size).apply(torch.rand(8, 1, *size), labels, ones, ignore=255)
    assert set(view.labels.unique().tolist()) <= {7, 200, 255}
    assert (view.labels[~view.inside] == 255).all() and (view.labels[view.inside] != 255).all()
    assert (view.confidence[~view.inside] == 0).all()
    assert view.confidence.min() >= 0 and view.confidence.max() <= 1
    torch.testing.assert_close(view.confidence[view.inside], torch.ones(int(view.inside.sum())))
    assert set(CHAINS[chain](seeded(5), 8, size).apply(ones[:, None], labels).labels.unique().tolist()) <= {0, 7, 200}


def test_images_and_confidences_are_bilinear_and_labels_nearest() -> None:
    ramp = torch.arange(8.0).expand(1, 1, 8, 8) / 8
    shift = Geometry((matrices.translation(torch.tensor([0.6 / 7]), torch.zeros(1)),))  # 0.3 px to the right
    view = shift.apply(ramp, torch.arange(8).expand(1, 8, 8), ramp[:, 0])
    torch.testing.assert_close(view.images[0, 0, 0, :7], (torch.arange(7) + 0.3) / 8)
    torch.testing.assert_close(view.confidence[0, 0], torch.cat([(torch.arange(7) + 0.3) / 8, torch.zeros(1)]))
    assert view.labels[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    assert view.inside[0, 0].tolist() == [True] * 7 + [False]


def test_a_map_that_does_not_belong_is_refused() -> None:
    geometry = Geometry.identity(2)
    with pytest.raises(ValueError, match=r"expected images \(2, C, H, W\), found \(3, 1, 8, 8\)"):
        geometry.apply(torch.zeros(3, 1, 8, 8))
    with pytest.raises(ValueError, match=r"expected 2 maps of 8 x 8 pixels, found \(2, 1, 8, 9\)"):
        geometry.apply(torch.zeros(2, 1, 8, 8), torch.zeros(2, 8, 9, dtype=torch.uint8))
    with pytest.raises(ValueError, match="geometries for the same batch, found 2 and 3"):
        geometry.then(Geometry.identity(3))


# --- exact cases and composition


@pytest.mark.parametrize("size", [(16, 16), (15, 15), (9, 14), (1, 7)])
def test_identity_is_bit_for_bit(size: tuple[int, int]) -> None:
    images, labels, confidence = batch(3, size)
    for geometry in (Geometry.identity(3), Geometry.identity(3).then(Geometry.identity(3)).inverse()):
        view = geometry.apply(images, labels, confidence)
        assert torch.equal(view.images, images) and torch.equal(view.labels, labels)
        assert torch.equal(view.confidence, confidence) and view.inside.all()


@pytest.mark.parametrize("side", [16, 17])
def test_quarter_turns_and_mirrors_move_pixels_exactly(side: int) -> None:
    images, labels, confidence = batch(8, (side, side))
    turns, mirrors = torch.arange(8) % 4, torch.where(torch.arange(8) < 4, 1.0, -1.0)
    geometry = Geometry((matrices.quarter_turns(turns) @ matrices.scaling(mirrors, torch.ones(8)),))
    view = geometry.apply(images, labels, confidence)
    for i in range(8):
        for before, after in ((images, view.images), (labels, view.labels), (confidence, view.confidence)):
            turned = torch.rot90(before[i], int(turns[i]), (-2, -1))
            assert torch.equal(after[i], turned.flip(-1) if i >= 4 else turned)
    # The same through the grid, which an interpolating geometry takes: turns and points mean the same thing.
    through = F.grid_sample(images, geometry.points((side, side)).permute(0, 2, 3, 1), align_corners=True)
    torch.testing.assert_close(through, view.images, atol=1e-5, rtol=0)


def test_composition_of_exact_transforms_is_sequential_application() -> None:
    images, labels, confidence = batch(32, (24, 24))
    first, second = (
        Geometry((matrices.quarter_turns(torch.arange(32) // a) @ matrices.scaling(mirror, torch.ones(32)),))
        for a, mirror in ((1, torch.ones(32)), (4, 1 - 2.0 * (torch.arange(32) // 16)))
    )
    once = first.apply(images, labels, confidence)
    twice = second.apply(once.images, once.labels, once.confidence)
    together = first.then(second).apply(images, labels, confidence)
    for a, b in zip(together, twice, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(together.images, second.then(first).apply(images).images)  # the order matters


def test_composition_is_sequential_application_up_to_interpolation() -> None:
    size = (96, 64)
    y, x = torch.meshgrid(torch.linspace(0, 6, 96), torch.linspace(0, 6, 64), indexing="ij")
    smooth = (0.5 + 0.25 * torch.sin(x) + 0.25 * torch.cos(y + 1)).expand(16, 1, -1, -1)
    parts = [weak(seeded(1), 16, size), diffeo(seeded(2), 16, probability=1), equivariance(seeded(3), 16, size)]
    together = parts[0].then(parts[1]).then(parts[2]).apply(smooth)
    step, seen = smooth, torch.ones(16, 1, *size)
    for part in parts:
        step, seen = part.apply(step).images, part.apply(seen).images
    sound = together.inside & (seen[:, 0] > 0.999)
    assert sound.float().mean() > 0.4
    error = (together.images - step)[:, 0][sound].abs()
    assert error.max() < 0.01, error.max()
    assert (parts[0].apply(smooth).images - together.images)[:, 0][sound].abs().mean() > 0.05  # it did move


def test_same_seed_same_result_and_another_seed_another() -> None:
    size = (32, 48)
    images, labels, confidence = batch(5, size)

    def everything(seed: int) -> list[Tensor]:
        g = seeded(seed)
        view = CHAINS["all"](g, 5, size).apply(images, labels, confidence)
        mix = cutmix(g, 5, size)
        return [jitter(g, mix.of(view.images), GLCON), mix.of(view.labels), mix.of(view.confidence)]

    first, again, other = everything(1), everything(1), everything(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_global_random_state_is_neither_used_nor_changed() -> None:
    before = torch.get_rng_state()
    CHAINS["all"](seeded(), 3, (32, 32))
    jitter(seeded(), torch.rand(3, 1, 32, 32, generator=seeded()))
    cutmix(seeded(), 3, (32, 32))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 3])
def test_types_layouts_and_single_images_pass_through(dtype: torch.dtype, count: int) -> None:
    size = (31, 45)
    images, labels, confidence = batch(count, size)
    given = images.to(dtype).to(memory_format=torch.channels_last)
    kept = given.clone()
    g = seeded()
    view = CHAINS["all"](g, count, size).apply(given, labels.long(), confidence.half())
    mix = cutmix(g, count, size)
    out = jitter(g, mix.of(view.images), Strength(colour_probability=1, gamma_probability=1, blur_probability=1))
    assert out.dtype == dtype and out.shape == images.shape and out.isfinite().all()
    assert view.labels.dtype == torch.int64 and view.confidence.dtype == torch.float16
    assert mix.of(view.labels).dtype == torch.int64
    assert torch.equal(given, kept)
    if dtype == torch.float64:
        assert not torch.equal(out, out.float().double())


@pytest.mark.gpu
def test_a_gpu_gives_the_same_augmentation() -> None:
    size = (64, 64)
    images, labels, confidence = batch(4, size)
    views = []
    for device in ("cpu", "cuda"):
        g = seeded()
        geometry = weak(g, 4, size).then(diffeo(g, 4, probability=1, device=device))
        geometry = geometry.then(equivariance(g, 4, size, device=device))
        view = geometry.apply(images.to(device), labels.to(device), confidence.to(device))
        mix = cutmix(g, 4, size, device=device)
        views.append(jitter(g, mix.of(view.images), GLCON).cpu())
    torch.testing.assert_close(views[0], views[1], atol=1e-3, rtol=0)


def test_sampling_is_differentiable() -> None:
    probabilities = torch.rand(4, 3, 20, 20, dtype=torch.float64, requires_grad=True)
    grid = weak(seeded(4), 4, (20, 20)).grid((20, 20))
    assert grid.turns and grid.moved  # both ways of moving
    grid.bilinear(probabilities).sum().backward()
    assert probabilities.grad[list(grid.turns)].eq(1).all()
    assert probabilities.grad[grid.moved].sum() == pytest.approx(
        float(grid.bilinear(torch.ones(4, 3, 20, 20))[grid.moved].sum()), rel=1e-4
    )


# --- weak


def test_weak_branches_have_the_published_frequencies() -> None:
    n = 4000
    matrix = weak(seeded(), n, (64, 64)).steps[0]
    whole = (matrix == matrix.round()).all(2).all(1)
    mirrored = whole & (torch.linalg.det(matrix) < 0)
    crop = ~whole & (matrix[:, 0, 1] == 0)
    rotated = ~whole & ~crop
    still = whole & ~mirrored  # nothing, or a rotation by 0 degrees (1 in 40)
    chance = {"turned": (mirrored, 0.5), "rotated": (rotated, 0.25 * 39 / 40)}
    chance |= {"cropped": (crop, 0.125), "still": (still, 0.125 + 0.25 / 40)}
    for name, (found, p) in chance.items():
        assert abs(int(found.sum()) - n * p) < 4 * math.sqrt(n * p * (1 - p)), name
    assert torch.equal(matrix[still][:, :2], torch.eye(3).double().expand(int(still.sum()), 3, 3)[:, :2])

    kinds = Counter(tuple(m.flatten().tolist()) for m in matrix[mirrored][:, :2, :2])
    assert len(kinds) == 4  # a quarter turn and then always a mirror: the four reflections of a square
    assert min(kinds.values()) > 0.2 * sum(kinds.values())
    angle = torch.rad2deg(torch.atan2(matrix[rotated][:, 1, 0], matrix[rotated][:, 0, 0]))
    assert angle.round().unique().tolist() == [a for a in range(-20, 20) if a]
    side = matrix[crop][:, 0, 0]
    assert torch.equal(side, matrix[crop][:, 1, 1]) and 0.8 <= side.min() < 0.81 and 0.99 < side.max() <= 1
    assert (matrix[crop][:, :2, 2].abs() + side[:, None] <= 1 + 1e-12).all()  # stays in the frame
    assert float(torch.corrcoef(matrix[crop][:, :2, 2].T)[0, 1]) == pytest.approx(0, abs=0.2)


def test_weak_keeps_the_shape_of_a_frame_that_is_not_square() -> None:
    size = (40, 64)
    matrix = weak(seeded(), 500, size).steps[0]
    to_pixels = torch.diag(torch.tensor([63.0, 39.0, 1.0])).double()
    rigid = (to_pixels @ matrix @ torch.linalg.inv(to_pixels))[:, :2, :2]
    gram = rigid @ rigid.transpose(1, 2)
    scale = gram[:, 0, 0, None, None]
    torch.testing.assert_close(gram, scale * torch.eye(2).double())
    grid = weak(seeded(), 500, size).grid(size)
    assert len(grid.turns) > 250 and not any(t.transpose for t in grid.turns.values())


def test_a_crop_shows_a_part_of_the_image_and_nothing_else() -> None:
    geometry = weak(seeded(), 200, (32, 32))
    crop = (geometry.steps[0][:, 0, 0] < 1) & (geometry.steps[0][:, 0, 1] == 0) & (geometry.steps[0][:, 0, 0] > 0.5)
    view = geometry[crop].apply(torch.ones(int(crop.sum()), 1, 32, 32))
    assert view.inside.all() and view.images.min() > 0.9999


# --- diffeomorphic warp


@pytest.mark.parametrize("strength", [1.5, 3.0])
def test_a_thousand_warps_do_not_fold(strength: float) -> None:
    lowest, longest = [], []
    for seed in range(20):
        velocity = 2 * torch.rand(50, 2, KNOTS, KNOTS, generator=seeded(seed)) - 1
        velocity *= strength / velocity.flatten(1).norm(dim=1)[:, None, None, None]  # the largest epsilon, always
        warp = Geometry((integrate(spread(velocity)),))
        lowest.append(jacobian(warp.steps[0] + Geometry.identity(50).points((129, 129))).min())
        if seed == 0:
            assert jacobian(warp.points((256, 256))).min() > 0.1
            moved = pixels(warp.points((256, 256)) - Geometry.identity(50).points((256, 256)))
            rms = float(moved.square().sum(1).mean().sqrt())
            assert rms == pytest.approx(strength, rel=0.1)  # method 5.4: 1.5 px RMS
            longest.append(float(moved.abs().max()))
    assert min(lowest) > 0.1, min(lowest)
    assert longest[0] == pytest.approx(3 * strength, rel=0.3)


def test_the_warp_maps_the_frame_onto_itself() -> None:
    for size in SIZES:
        warp = diffeo(seeded(), 8, probability=1, strength=3)
        points = warp.points(size)
        torch.testing.assert_close(points[:, 0, :, [0, -1]].abs(), torch.ones(8, size[0], 2))
        torch.testing.assert_close(points[:, 1, [0, -1]].abs(), torch.ones(8, 2, size[1]))
        assert warp.grid(size).inside.all()
        assert warp.apply(torch.ones(8, 1, *size)).images.min() > 0.999


def test_low_resolution_agrees_with_full_size_integration() -> None:
    """method 5.4 step by step at 256 x 256 in float64: conv, interpolate, 8 squarings of phi, blur of 1 px."""
    n = 256
    velocity = 2 * torch.rand(8, 2, KNOTS, KNOTS, generator=seeded(7), dtype=torch.float64) - 1
    velocity *= 1.5 / velocity.flatten(1).norm(dim=1)[:, None, None, None]
    bell = torch.exp(-(torch.arange(-3, 4, dtype=torch.float64) ** 2) / 2)
    kernel = (bell[:, None] * bell / bell.sum() ** 2).expand(2, 1, 7, 7)
    full = F.interpolate(F.conv2d(velocity, kernel, padding=3, groups=2), (n, n), mode="bilinear", align_corners=False)
    fade = (torch.minimum(torch.arange(n), n - 1 - torch.arange(n)).double() / 16).clamp(max=1)
    full = full * torch.stack([fade.expand(n, n), fade.expand(n, n).T])
    frame = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, n, dtype=torch.float64)] * 2, indexing="xy"))
    phi = frame + full / 256
    for _ in range(8):
        phi = F.grid_sample(phi, phi.permute(0, 2, 3, 1), padding_mode="border", align_corners=True)
    moved = F.conv2d(F.pad(phi - frame, (3, 3, 3, 3), mode="replicate"), kernel, groups=2)

    ours = Geometry((integrate(spread(velocity.float())),)).points((n, n)) - frame
    error = pixels(ours - moved).square().sum(1).sqrt()
    assert error.square().mean().sqrt() < 0.02  # px; method 5.4 allows 0.05
    assert error.flatten()[::13].quantile(0.99) < 0.05
    assert error.max() < 0.15


def test_the_warp_is_one_coin_per_batch_and_an_epsilon_per_image() -> None:
    generator = seeded()
    draws = [diffeo(generator, 2) for _ in range(300)]
    warped = [g for g in draws if g.steps[0].ndim == 4]
    assert abs(len(warped) - 150) < 4 * math.sqrt(75)
    sizes = torch.stack([g.steps[0].square().mean((1, 2, 3)).sqrt() for g in warped])
    assert sizes.min() < 0.1 * sizes.max() and (sizes[:, 0] != sizes[:, 1]).all()
    still = next(g for g in draws if g.steps[0].ndim == 3)
    images = torch.rand(2, 1, 20, 20)
    assert torch.equal(still.apply(images).images, images)


# --- equivariance


def tps(points: np.ndarray, controls: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The thin-plate spline through `values` at `controls`, straight from its definition, float64."""

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        r2 = ((a[:, None] - b) ** 2).sum(-1)
        return 0.5 * r2 * np.log(np.where(r2 == 0, 1, r2))

    n = len(controls)
    ones = np.c_[np.ones(n), controls]
    system = np.block([[kernel(controls, controls), ones], [ones.T, np.zeros((3, 3))]])
    weights = np.linalg.solve(system, np.r_[values, np.zeros((3, 2))])
    return kernel(points, controls) @ weights[:n] + np.c_[np.ones(len(points)), points] @ weights[n:]


@pytest.mark.parametrize("size", [(65, 65), (33, 49)])
def test_the_grid_is_the_thin_plate_spline_through_moved_control_points(size: tuple[int, int]) -> None:
    limits = Equivariance(bend=0.05)
    geometry = equivariance(seeded(2), 3, size, limits=limits)
    points = geometry.points(size).double().numpy()
    shifts = torch.rand(3, CONTROLS**2, 2, generator=seeded(2), dtype=torch.float64).numpy() * 0.1 - 0.05  # first draw
    axis = np.linspace(-1, 1, CONTROLS)
    controls = np.array([(x, y) for y in axis for x in axis])
    rows, columns = (np.linspace(0, n - 1, CONTROLS).astype(int) for n in size)  # control points are pixels here
    every = np.array([(x, y) for y in np.linspace(-1, 1, size[0]) for x in np.linspace(-1, 1, size[1])])
    for i in range(3):
        similarity = geometry.steps[0][i].numpy()
        moved = (controls + shifts[i]) @ similarity[:2, :2].T + similarity[:2, 2]
        at_controls = points[i][:, rows[:, None], columns].reshape(2, -1).T
        np.testing.assert_allclose(at_controls, moved, atol=2e-6)
        np.testing.assert_allclose(points[i].reshape(2, -1).T, tps(every, controls, moved), atol=5e-6)


def test_equivariance_ranges() -> None:
    matrix = equivariance(seeded(), 2000, (8, 8)).steps[0]
    scale = torch.linalg.det(matrix).abs().sqrt()
    assert 0.8333 <= scale.min() < 0.84 and 1.24 < scale.max() <= 1.25
    assert abs(int((torch.linalg.det(matrix) < 0).sum()) - 1000) < 4 * math.sqrt(500)  # a coin per image
    angle = torch.rad2deg(torch.atan2(-matrix[:, 0, 1], matrix[:, 1, 1]))
    assert -60 <= angle.min() < -58 and 58 < angle.max() <= 60
    shift = matrix[:, :2, 2]
    assert 0.098 < shift.abs().max() <= 0.1 and abs(float(shift.mean())) < 0.005
    bend = equivariance(seeded(), 200, (17, 17)).steps[1]
    assert 0.009 < bend[..., ::4, ::4].abs().max() <= 0.0100001


def test_no_transform_is_the_identity() -> None:
    nothing = Equivariance(degrees=0, scale=(1, 1), shift=0, bend=0, mirror=0)
    images, labels, confidence = batch(3, (24, 40))
    view = equivariance(seeded(), 3, (24, 40), limits=nothing).apply(images, labels, confidence)
    assert torch.equal(view.images, images) and torch.equal(view.labels, labels) and view.inside.all()
    probabilities = torch.rand(3, 4, 24, 40)
    assert torch.equal(
        equivariance(seeded(), 3, (24, 40), limits=nothing).grid((24, 40)).bilinear(probabilities), probabilities
    )


@pytest.mark.parametrize("size", [(128, 128), (96, 160)])
def test_there_and_back(size: tuple[int, int]) -> None:
    transform = equivariance(seeded(1), 8, size)
    frame = Geometry.identity(8).points(size)
    assert pixels(transform.then(transform.inverse()).points(size) - frame).abs().max() < 0.1
    bent = diffeo(seeded(1), 8, probability=1)
    assert pixels(bent.then(bent.inverse()).points(size) - frame).abs().max() < 0.15

    y, x = torch.meshgrid(torch.linspace(0, 9, size[0]), torch.linspace(0, 9, size[1]), indexing="ij")
    smooth = (0.5 + 0.25 * torch.sin(x) + 0.25 * torch.cos(y + 1)).expand(8, 1, -1, -1)
    there = transform.apply(torch.cat([smooth, torch.ones_like(smooth)], 1)).images
    back = transform.inverse().apply(there)
    seen = back.inside & (back.images[:, 1] > 0.999)
    assert seen.float().mean() > 0.5
    assert (back.images[:, :1] - smooth)[:, 0][seen].abs().max() < 0.01  # two resamplings of a smooth image
    assert (there[:, :1] - smooth).abs().mean() > 0.1


def test_an_inverse_that_is_not_found_is_not_returned() -> None:
    field = torch.zeros(1, 2, 9, 9)
    field[:, 0] = 5 * torch.linspace(-1, 1, 9)
    with pytest.raises(ValueError, match="cannot be inverted"):
        Geometry((field,)).inverse()


def test_warped_probabilities_divided_by_a_warped_mask_are_probabilities() -> None:
    """decision 7: what T does to the edge is the same for every map."""
    grid = equivariance(seeded(3), 6, (40, 40)).grid((40, 40))
    warped = grid.bilinear(torch.rand(6, 4, 40, 40).softmax(1))
    ones = grid.bilinear(torch.ones(6, 1, 40, 40))
    total = (warped / ones.clamp(min=1e-6)).sum(1)[ones[:, 0] > 1e-3]
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (ones < 1e-6).any() and (ones[:, 0][grid.inside] > 0.9999).all()


# --- intensity


def test_parameters_that_change_nothing_leave_every_bit() -> None:
    ramp = (torch.arange(10_000) * 1e-4).float().view(1, 1, 100, 100)  # 8 bits would keep 256 of these values
    drawn = draw_jitter(seeded(), 1, Strength(colour_probability=0, gamma_probability=0, blur_probability=0))
    assert torch.equal(apply_jitter(ramp, drawn), ramp)
    one = (1.0, 1.0)
    always = Strength(one, one, one, (0.0, 0.0), 1, 1, 1)
    assert torch.equal(jitter(seeded(), ramp, always), ramp)
    gentle = Strength((0.9, 0.9), one, one, (0.0, 0.0), 1, 1, 1)
    assert len(jitter(seeded(), ramp, gentle).unique()) == 10_000


def test_brightness_contrast_and_gamma_follow_their_definitions() -> None:
    images = torch.rand(40, 1, 20, 24, generator=seeded(1))
    kept = images.clone()
    drawn = draw_jitter(seeded(2), 40, Strength(gamma_probability=0.5, blur_probability=0))
    out = apply_jitter(images, drawn)
    for i in range(40):
        x = images[i].double()
        b, c, g = (float(p[i]) for p in (drawn.brightness, drawn.contrast, drawn.gamma))
        parts = [lambda v, b=b: (b * v).clip(0, 1), lambda v, c=c: (c * v + (1 - c) * v.mean()).clip(0, 1)]
        for part in reversed(parts) if drawn.contrast_first[i] else parts:
            x = part(x)
        torch.testing.assert_close(out[i].double(), x**g, atol=1e-5, rtol=0)
    assert torch.equal(images, kept)  # difference 6: never in place
    assert drawn.contrast_first.any() and not drawn.contrast_first.all()


@pytest.mark.parametrize("strength", [ACR, GLCON])
def test_intensity_parameters_have_their_ranges_and_frequencies(strength: Strength) -> None:
    n = 4000
    drawn = draw_jitter(seeded(), n, strength)
    chances = {"brightness": strength.colour_probability, "contrast": strength.colour_probability}
    chances |= {"gamma": strength.gamma_probability, "blur": strength.blur_probability}
    assert set(chances) <= {f.name for f in fields(strength)}
    for name, p in chances.items():
        values, (low, high) = getattr(drawn, name), getattr(strength, name)
        changed = values[values != (0 if name == "blur" else 1)]
        assert abs(len(changed) - n * p) <= 4 * math.sqrt(n * p * (1 - p)), name
        if p:
            assert (
                low <= changed.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < changed.max() <= high
            )
            assert float(changed.mean()) == pytest.approx((low + high) / 2, abs=0.02 * (high - low) + 0.01)
    assert (GLCON.brightness, ACR.brightness, ACR.blur) == ((0.8, 1.2), (0.75, 1.25), (0.15, 1.15))


def test_the_result_stays_in_range() -> None:
    wild = Strength((0.2, 4), (0.2, 4), (0.3, 3), (0.1, 3), 1, 1, 1)
    out = jitter(seeded(), torch.randn(16, 1, 32, 32, generator=seeded()), wild)
    assert out.isfinite().all() and out.min() >= 0 and out.max() <= 1


def dense_blur(plane: Tensor, down: float, across: float) -> Tensor:
    """The definition: every pixel a weighted sum over the frame, what lies beyond taking the edge's value."""

    def matrix(n: int, sigma: float) -> Tensor:
        radius = int(4 * sigma + 0.5)
        out = torch.zeros(n, n, dtype=torch.float64)
        for i in range(n):
            for k in range(-radius, radius + 1):
                out[i, min(max(i + k, 0), n - 1)] += math.exp(-0.5 * (k / sigma) ** 2)
        return out / out.sum(1, keepdim=True)

    return matrix(plane.shape[0], down) @ plane.double() @ matrix(plane.shape[1], across).T


@pytest.mark.parametrize("size", [(32, 32), (21, 34)])
def test_blur_is_the_gaussian_of_its_definition_and_of_scipy(size: tuple[int, int]) -> None:
    images = torch.rand(5, 2, *size, generator=seeded())
    down, across = torch.tensor([0.15, 0.5, 0.9, 1.15, 2.0]), torch.tensor([1.0, 0.15, 0.9, 1.15, 0.4])
    out = gaussian_blur(images, down, across)
    for i in range(5):
        for channel in range(2):
            sigmas = float(down[i]), float(across[i])
            expected = dense_blur(images[i, channel], *sigmas)
            torch.testing.assert_close(out[i, channel].double(), expected, atol=2e-4, rtol=0)  # radius of the largest
            scipy = gaussian_filter(images[i, channel].double().numpy(), sigmas, mode="nearest", truncate=6)
            np.testing.assert_allclose(out[i, channel].numpy(), scipy, atol=2e-4)
    alone = gaussian_blur(images[3:4], down[3:4], across[3:4])
    torch.testing.assert_close(alone[0, 0].double(), dense_blur(images[3, 0], 1.15, 1.15), atol=1e-6, rtol=0)


def test_blur_scales_with_the_input() -> None:
    only = Strength(blur=(1.0, 1.0), colour_probability=0, blur_probability=1)
    for height, width in ((128, 512), (256, 256)):
        spot = torch.zeros(1, 1, height, width)
        spot[..., height // 2, width // 2] = 1
        out = jitter(seeded(), spot, only)[0, 0].double()
        y, x = (torch.arange(n).double() - n // 2 for n in (height, width))
        sigmas = [float((out.sum(d) * t**2).sum().sqrt()) for d, t in ((1, y), (0, x))]
        # rel: at whole pixels, a Gaussian of sigma 0.5 px has a standard deviation of 0.46
        assert sigmas == pytest.approx([height / 256, width / 256], rel=0.1)


# --- CutMix


@pytest.mark.parametrize("size", [(256, 256), (255, 255), (64, 96), (97, 33), (5, 7), (3, 3)])
def test_the_box_has_half_the_area(size: tuple[int, int]) -> None:
    height, width = size
    keep = cutmix(seeded(), 400, size).keep
    box = ~keep
    area = box.sum((1, 2))
    assert (area - height * width / 2).abs().max() <= width / 2 + 0.5  # half of one row
    rows, columns = box.any(2).sum(1), box.any(1).sum(1)
    assert torch.equal(rows * columns, area)  # a full rectangle
    assert columns.min() == width // 2 + 1 and columns.max() == width - 1
    if size == (256, 256):
        assert rows.min() >= 129 and rows.max() <= 254
        first = box.any(1).float().argmax(1)
        room = 256 - columns
        share = (first / room)[room > 20]
        assert share.min() < 0.05 and share.max() > 0.95 and float(share.mean()) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_cutmix_mixes_all_maps_with_one_mask(count: int) -> None:
    size = (24, 36)
    ids = torch.arange(count)[:, None, None].expand(count, *size)
    mix = cutmix(seeded(), count, size)
    images, labels, confidence = mix.of(ids[:, None].float() / 8), mix.of(ids.to(torch.int64) - 1), mix.of(ids / 16)
    logits = mix.of(ids[:, None].expand(count, 4, *size).float())
    expected = torch.where(mix.keep, ids, (ids + 1) % count)
    assert torch.equal(images[:, 0] * 8, expected.float())
    assert torch.equal(labels, expected - 1)  # -1, "ignore", too
    assert torch.equal(confidence * 16, expected.float())
    assert torch.equal(logits[:, 3], expected.float())


def test_cutmix_refuses_what_it_cannot_cut() -> None:
    with pytest.raises(ValueError, match="at least 3 x 3"):
        cutmix(seeded(), 2, (2, 8))
    with pytest.raises(ValueError, match=r"found \(2, 8, 9\)"):
        cutmix(seeded(), 2, (8, 8)).of(torch.zeros(2, 8, 9))
