"""Brightness, contrast, gamma and blur (method 5), against their definitions."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
import torch
from helpers.steps import seeded
from scipy.ndimage import gaussian_filter
from torch import Tensor

from mona_train.augment import ACR, GLCON, Strength, apply_jitter, draw_jitter, jitter
from mona_train.augment.blur import gaussian_blur


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
