"""Windows (method 3.4): where they lie, and that they are the slices they say."""

from __future__ import annotations

import pytest
import torch
from helpers.steps import seeded

from mona_train.losses.local_windows import draw_windows


def test_the_grid_spans_the_frame_row_by_row() -> None:
    w = draw_windows(seeded(), (256, 256), jitter=0)
    origins = [round(38.4 * k) for k in range(6)]
    assert origins == [0, 38, 77, 115, 154, 192]
    assert w.top.tolist() == [y for y in origins for _ in range(6)]
    assert w.left.tolist() == origins * 6
    assert w.side == (64, 64) and len(w) == 36


@pytest.mark.parametrize("size", [(256, 256), (128, 128), (64, 64), (48, 80)])
def test_jitter_keeps_windows_near_their_place_and_inside(size: tuple[int, int]) -> None:
    still = draw_windows(seeded(), size, jitter=0)
    drawn = [draw_windows(seeded(n), size) for n in range(200)]
    assert all(w.side == (size[0] // 4, size[1] // 4) for w in drawn)
    for axis, (name, extent) in enumerate(zip(("top", "left"), size, strict=True)):
        found = torch.stack([getattr(w, name) for w in drawn])  # draws, windows
        room = extent - extent // 4
        assert found.min() == 0 and found.max() == room
        off = found - getattr(still, name)
        assert off.abs().max() <= extent / 16 + 1  # both are rounded
        inner = getattr(still, name).clone().clamp(extent // 16, room - extent // 16) == getattr(still, name)
        assert off[:, inner].abs().max() >= extent / 16 - 1
        assert off[:, inner].float().mean().abs() < extent / 160  # around its place, not beside it
        assert (found[:, 0] != found[:, [1, 6][axis == 0]]).any()
    assert any((w.top[:6] != w.top[0]).any() for w in drawn)  # each window moves on its own


def test_windows_come_from_the_cpu_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    a, b, c = draw_windows(seeded(1), (64, 64)), draw_windows(seeded(1), (64, 64)), draw_windows(seeded(2), (64, 64))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a.top, b.top) and torch.equal(a.left, b.left) and not torch.equal(a.top, c.top)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_windows_are_the_slices_they_say(layout: torch.memory_format) -> None:
    size = (48, 80)
    maps = torch.randn(2, 3, *size).contiguous(memory_format=layout).requires_grad_()
    w = draw_windows(seeded(5), size, per_side=3)
    (h, k), places = w.side, list(zip(w.top.tolist(), w.left.tolist(), strict=True))
    assert (h, k) == (12, 20)
    expected = torch.stack([maps[:, :, y : y + h, x : x + k] for y, x in places], 1)
    found = w.of(maps)
    assert found.shape == (2, 9, 3, 12, 20) and torch.equal(found, expected)
    weight = torch.randn(found.shape, generator=seeded(6))
    (gradient,) = torch.autograd.grad((found * weight).sum(), maps)
    (wanted,) = torch.autograd.grad((expected * weight).sum(), maps)
    torch.testing.assert_close(gradient, wanted)


def test_windows_of_another_frame_are_refused() -> None:
    with pytest.raises(ValueError, match=r"maps \(B, C, 64, 64\), found \(2, 4, 32, 64\)"):
        draw_windows(seeded(), (64, 64)).of(torch.zeros(2, 4, 32, 64))
    with pytest.raises(ValueError, match="at least 4 x 4 pixels and one window"):
        draw_windows(seeded(), (64, 64), per_side=0)
