"""The fitted augmentation: how far it goes, how often, and that each part does what its name says."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.steps import seeded
from torch import Tensor

from mona_train.augment import ACR, Equivariance, Fitted, fitted

N, SIZE = 4000, (48, 48)
PARTS = ("BIAS", "CONTRAST", "BRIGHTNESS", "GAMMA", "NOISE")


def likely(found: Tensor, chance: float) -> bool:
    n = len(found)
    return abs(int(found.sum()) - n * chance) < 4 * math.sqrt(n * chance * (1 - chance))


def similarity(mirrors: bool = False, size: tuple[int, int] = SIZE) -> Tensor:
    return Fitted(mirrors).within(seeded(), N, size, "cpu").steps[0]


# --- geometry


def test_rotation_scale_and_shift_are_uniform_within_their_limits() -> None:
    matrix = similarity()
    angle = torch.rad2deg(torch.atan2(matrix[:, 1, 0], matrix[:, 0, 0]))
    assert -35 <= angle.min() < -34.5 and 34.5 < angle.max() <= 35
    assert float(angle.std()) == pytest.approx(70 / math.sqrt(12), rel=0.05)
    picture = -torch.linalg.det(matrix[:, :2, :2]).log() / 2
    assert math.log(0.75) <= picture.min() < math.log(0.76) and math.log(1.29) < picture.max() <= math.log(1.3)
    assert float(picture.mean()) == pytest.approx((math.log(0.75) + math.log(1.3)) / 2, abs=0.01)
    shift = matrix[:, :2, 2]
    assert 0.166 < float(shift.abs().max()) <= 8 / 48
    drawn = torch.stack([angle, picture, *shift.T])
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 0.07


def test_half_of_the_images_bend_a_little() -> None:
    """2 of 96 pixels at each of 6 x 6 knots; between knots a little less."""
    bend = Fitted().within(seeded(), 400, (96, 96), "cpu").steps[1]
    bent = bend.flatten(1).any(1)
    assert bend.shape == (400, 2, 96, 96) and likely(bent, 0.5)
    pixels = bend[bent] * 95 / 2
    assert float(pixels.std()) == pytest.approx(2 * 95 / 96, rel=0.25)
    corner = pixels[:, :, 0, 0]
    assert float(corner.std()) == pytest.approx(2 * 95 / 96, rel=0.15)
    assert pixels.diff(dim=3).abs().max() < 1.5  # smooth: a step of one pixel changes it by little


def test_mirrors_and_quarter_turns_only_where_wanted() -> None:
    def mirrored(matrix: Tensor) -> Tensor:
        return torch.linalg.det(matrix) < 0

    def quarter(matrix: Tensor, aspect: float = 1) -> Tensor:
        unmirrored = matrix[~mirrored(matrix)]
        return torch.atan2(unmirrored[:, 1, 0] / aspect, unmirrored[:, 0, 0]).div(math.pi / 2).round().long() % 4

    assert not mirrored(similarity()).any() and not quarter(similarity()).any()
    assert likely(mirrored(similarity(mirrors=True)), 0.5)
    turns = quarter(similarity(mirrors=True)).bincount() / (N / 2)
    assert len(turns) == 4 and turns.min() > 0.2 and turns.max() < 0.3
    flat = similarity(mirrors=True, size=(32, 48))  # a frame that is not square keeps its shape
    assert set(quarter(flat, 47 / 31).tolist()) == {0, 2}


def test_rotations_are_rigid_also_where_the_window_is_not_square() -> None:
    to_pixels = torch.diag(torch.tensor([47.0, 31.0, 1.0])).double()
    rigid = (to_pixels @ similarity(size=(32, 48)) @ torch.linalg.inv(to_pixels))[:, :2, :2]
    gram = rigid @ rigid.transpose(1, 2)
    torch.testing.assert_close(gram, gram[:, 0, 0, None, None] * torch.eye(2).double())


def test_a_strong_view_has_no_warp_and_T_no_pose_that_views_do_not_have() -> None:
    assert Fitted().warp(seeded(), 4, "cpu") is None
    assert Fitted().limits == Equivariance(degrees=35, mirror=0)
    assert Fitted(mirrors=True).limits == Equivariance(degrees=35, mirror=0.5)


# --- appearance


def picture(count: int = 64) -> Tensor:
    """From 0.2 to 0.8 across, the same in every row."""
    return torch.linspace(0.2, 0.8, 48).expand(count, 1, *SIZE).clone()


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No part changes anything."""
    for part in PARTS:
        monkeypatch.setattr(fitted, part, 0.0)
    monkeypatch.setattr(fitted, "BLUR_PROBABILITY", 0.0)
    return monkeypatch


def appearance(images: Tensor) -> Tensor:
    return Fitted().appearance(seeded(), images, None)


def test_without_its_parts_nothing_changes(still: pytest.MonkeyPatch) -> None:
    torch.testing.assert_close(appearance(picture()), picture(), atol=1e-6, rtol=0)


def test_the_bias_field_is_smooth_and_a_factor(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "BIAS", 0.05)
    gain = appearance(picture(400)) / picture(400) - 1
    biased = gain.abs().amax((1, 2, 3)) > 1e-4
    assert likely(biased, 0.5)
    assert float(gain[biased][:, 0, 0, 0].std()) == pytest.approx(0.05, rel=0.2)  # at a knot
    assert gain.diff(dim=3).abs().max() < 0.02 and gain.diff(dim=2).abs().max() < 0.02


def test_contrast_keeps_the_mean(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "CONTRAST", 0.4)
    found = appearance(picture())
    torch.testing.assert_close(found.mean((1, 2, 3)), torch.full((64,), 0.5))
    factor = ((found[:, 0, 0, -1] - found[:, 0, 0, 0]) / 0.6).log()
    assert -0.4 <= factor.min() < -0.3 and 0.3 < factor.max() <= 0.4


def test_brightness_is_added(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "BRIGHTNESS", 0.1)
    added = appearance(picture()) - picture()
    assert added.std((1, 2, 3)).max() < 1e-6
    assert -0.1 <= added.min() < -0.08 and 0.08 < added.max() <= 0.1


def test_gamma_is_a_power(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "GAMMA", 0.5)
    found = appearance(picture(400))
    power = found.log() / picture(400).log()
    assert (power - power[..., :1, :1]).abs().max() < 1e-4
    curved = power[:, 0, 0, 0].log()
    assert likely(curved.abs() > 1e-5, 0.7)
    assert -0.5 <= curved.min() < -0.45 and 0.45 < curved.max() <= 0.5


def test_blur_is_in_pixels_of_a_window_of_96(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "BLUR_PROBABILITY", 1.0)
    still.setattr(fitted, "BLUR", (1.2, 1.2))
    dot = torch.zeros(1, 1, 96, 192)
    dot[0, 0, 48, 96] = 1
    found = appearance(dot)[0, 0]
    assert float(found.sum()) == pytest.approx(1, abs=1e-5)
    variance = [float((found.sum(1 - axis) * (torch.arange(n) - n // 2) ** 2).sum()) for axis, n in ((0, 96), (1, 192))]
    assert variance == pytest.approx([1.2**2, 2.4**2], rel=0.02)


def test_how_often_there_is_blur(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "BLUR_PROBABILITY", 0.3)
    rough = torch.rand(400, 1, *SIZE, generator=seeded(2))
    assert likely((appearance(rough) - rough).abs().amax((1, 2, 3)) > 1e-3, 0.3)


def test_noise_is_not_clipped(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "NOISE", 0.06)
    black = torch.zeros(400, 1, *SIZE)
    sigma = appearance(black).std((1, 2, 3))
    assert likely(sigma > 0, 0.5)
    assert 0.055 < sigma.max() < 0.063 and float(appearance(black).mean()) == pytest.approx(0, abs=1e-3)


def test_intensities_are_clipped_before_gamma(still: pytest.MonkeyPatch) -> None:
    still.setattr(fitted, "BRIGHTNESS", 0.5)
    found = appearance(picture())
    assert float(found.min()) == 0 and float(found.max()) == 1


def test_the_published_strength_plays_no_part() -> None:
    weak, strong = (Fitted().appearance(seeded(), picture(), strength) for strength in (None, ACR))
    assert torch.equal(weak, strong) and not torch.equal(weak, picture())


def test_the_images_themselves_are_left_alone_and_keep_their_type() -> None:
    images = picture().bfloat16()
    kept = images.clone()
    assert appearance(images).dtype == torch.bfloat16 and torch.equal(images, kept)
