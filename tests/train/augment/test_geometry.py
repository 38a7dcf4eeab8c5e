"""Geometry of a view: its maps move together and are resampled once, in exact cases and in composition."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import seeded, within
from helpers.views import SIZES, batch, blobs
from torch import Generator, Tensor

from mona_train.augment import (
    GLCON,
    Geometry,
    Strength,
    cutmix,
    diffeo,
    equivariance,
    jitter,
    matrices,
    weak,
)

Draw = Callable[[Generator, int, tuple[int, int]], Geometry]
CHAINS: dict[str, Draw] = {
    "weak": weak,
    "diffeo": lambda g, n, size: diffeo(g, n, probability=1),
    "equivariance": equivariance,
    "weak, diffeo": lambda g, n, size: weak(g, n, size).then(diffeo(g, n, probability=1)),
    "all": lambda g, n, size: weak(g, n, size).then(diffeo(g, n, probability=1)).then(equivariance(g, n, size)),
}


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
