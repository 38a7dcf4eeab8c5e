"""A window in a canvas: one resampling, real pixels beyond the window, and nothing new where both are the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import blobs, painted, seeded, within
from torch import Tensor

from mona_train.augment import PUBLISHED, Augmentation, Fitted, Geometry, augmentation_of, matrices, weak
from mona_train.augment.augmentation import centre

CANVAS, WINDOW = (60, 72), (40, 48)
KINDS = [PUBLISHED, Fitted(), Fitted(mirrors=True)]


def smooth(count: int, size: tuple[int, int]) -> Tensor:
    return F.interpolate(torch.rand(count, 1, 6, 6, generator=seeded(1)), size, mode="bicubic").clamp(0, 1)


def cut(maps: Tensor) -> Tensor:
    return maps[..., 10:50, 12:60]


def test_the_centre_is_the_canvas_without_its_margins() -> None:
    images, labels = torch.rand(3, 1, *CANVAS, generator=seeded()), blobs(3, CANVAS)
    view = centre(3, CANVAS, WINDOW).apply(images, labels, size=WINDOW)
    torch.testing.assert_close(view.images, cut(images), atol=1e-5, rtol=0)
    assert torch.equal(view.labels, cut(labels)) and bool(view.inside.all())


@pytest.mark.parametrize("kind", KINDS)
def test_views_have_the_windows_size(kind: Augmentation) -> None:
    images, labels = smooth(4, CANVAS), blobs(4, CANVAS)
    for size in (WINDOW, (33, 47), CANVAS, None):
        view = kind.view(seeded(), images, labels, window=size)
        assert view.images.shape == (4, 1, *(size or CANVAS)) and view.labels.shape == (4, *(size or CANVAS))
        assert view.inside.shape == view.labels.shape


@pytest.mark.parametrize("kind", KINDS)
def test_within_the_window_a_canvas_changes_nothing(kind: Augmentation) -> None:
    """Wherever the window alone has a pixel, the view of the canvas shows the same."""
    images = smooth(12, CANVAS)
    of_canvas = kind.view(seeded(3), images, window=WINDOW)
    of_window = kind.view(seeded(3), cut(images))
    inside = of_window.inside
    assert 0.7 < float(inside.float().mean()) < 1 and bool((of_canvas.inside | ~inside).all())
    torch.testing.assert_close(of_canvas.images[:, 0][inside], of_window.images[:, 0][inside], atol=1e-3, rtol=0)


def test_what_turns_into_the_window_is_the_slice_and_not_black() -> None:
    images = torch.ones(64, 1, 96, 96)
    fitted = Fitted()
    assert float((fitted.view(seeded(), images).images < 0.5).float().mean()) > 0.02
    assert float((fitted.view(seeded(), images, window=(64, 64)).images < 0.5).float().mean()) < 0.005


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_image_and_label_move_together(kind: Augmentation, seed: int) -> None:
    labels = blobs(8, (96, 96), seed)
    view = kind.view(seeded(seed), painted(labels), labels, window=(64, 64))
    sound = within(view.labels) & view.inside
    wrong = ((view.images[:, 0] * 3 - view.labels).abs() > 0.5) & sound
    assert float(sound.float().mean()) > 0.3 and float(wrong.sum() / sound.sum()) < 0.01
    assert not torch.equal(view.labels, labels[:, 16:80, 16:80])


def test_where_the_window_is_the_canvas_the_published_view_is_the_weak_one_bit_for_bit() -> None:
    images, labels = torch.rand(16, 1, 64, 64, generator=seeded()), blobs(16, (64, 64))
    expected = weak(seeded(5), 16, (64, 64)).apply(images, labels)
    for window in (None, (64, 64)):
        view = PUBLISHED.view(seeded(5), images, labels, window=window)
        assert torch.equal(view.images, expected.images) and torch.equal(view.labels, expected.labels)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_view(kind: Augmentation) -> None:
    images = smooth(4, CANVAS)
    first, again, other = (kind.view(seeded(s), images, window=WINDOW).images for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_is_one_resampling(kind: Augmentation, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    sample = F.grid_sample

    def counted(maps: Tensor, points: Tensor, mode: str = "bilinear", *rest: str, **options: object) -> Tensor:
        calls.append(mode)
        return sample(maps, points, mode, *rest, **options)

    monkeypatch.setattr(F, "grid_sample", counted)
    kind.view(seeded(), smooth(4, CANVAS), blobs(4, CANVAS), window=WINDOW)
    assert sorted(calls) == ["bilinear", "nearest"]


def test_a_turn_of_the_window_is_no_turn_of_the_canvas() -> None:
    turn = Geometry((matrices.quarter_turns(torch.ones(2, dtype=torch.int64)),))
    assert len(turn.grid((64, 64)).turns) == 2 and not turn.grid((64, 64), source=(96, 96)).turns


def test_maps_must_have_the_size_of_the_canvas() -> None:
    grid = centre(2, CANVAS, WINDOW).grid(WINDOW, source=CANVAS)
    with pytest.raises(ValueError, match=r"expected 2 maps of 60 x 72 pixels, found \(2, 1, 40, 48\)"):
        grid.bilinear(torch.zeros(2, 1, *WINDOW))


def test_the_kinds_by_name() -> None:
    assert augmentation_of("published") is PUBLISHED
    assert augmentation_of("fitted") == Fitted(mirrors=False)
    assert augmentation_of("fitted", mirrors=True) == Fitted(mirrors=True)
