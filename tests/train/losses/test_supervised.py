"""The supervised loss (method 3.5): cross-entropy and Dice with squares over the batch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import blobs, seeded
from torch import Tensor

from mona_train.losses.supervised import supervised


def naive_supervised(logits: Tensor, labels: Tensor) -> float:
    """Pixel by pixel, in float64."""
    p = logits.double().softmax(1)
    count, classes, height, width = p.shape
    pixels = [(b, y, x) for b in range(count) for y in range(height) for x in range(width)]
    entropy = -sum(float(p[b, labels[b, y, x], y, x].log()) for b, y, x in pixels) / len(pixels)
    terms = []
    for c in range(classes):
        both = sum(float(p[b, c, y, x]) for b, y, x in pixels if labels[b, y, x] == c)
        squares = sum(float(p[b, c, y, x]) ** 2 + float(labels[b, y, x] == c) for b, y, x in pixels)
        terms.append(1 - (2 * both + 1e-5) / (squares + 1e-5))
    return entropy + sum(terms) / classes


@pytest.mark.parametrize("missing", [None, 0, 3])
def test_supervised_is_cross_entropy_and_dice_with_squares_over_the_batch(missing: int | None) -> None:
    logits, labels = 2 * torch.randn(3, 4, 5, 6, generator=seeded(1)), blobs(3, (5, 6))
    if missing is not None:
        labels[labels == missing] = 1
    assert float(supervised(logits, labels)) == pytest.approx(naive_supervised(logits, labels), rel=1e-5)


def test_a_perfect_prediction_costs_nothing_also_where_a_class_is_absent() -> None:
    labels = blobs(2, (16, 16)).clamp(max=2)
    logits = 50 * F.one_hot(labels, 4).permute(0, 3, 1, 2).float()
    assert float(supervised(logits, labels)) == pytest.approx(0, abs=1e-4)


def test_supervised_is_float32_under_autocast() -> None:
    labels = blobs(2, (16, 16))
    logits = torch.randn(2, 4, 16, 16, generator=seeded(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = supervised(logits, labels)
    assert inside.dtype == torch.float32 and torch.equal(inside, supervised(logits.float(), labels))


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels \(B, H, W\), found \(2, 4, 8, 8\) and \(2, 1, 8, 8\)"):
        supervised(torch.zeros(2, 4, 8, 8), torch.zeros(2, 1, 8, 8, dtype=torch.int64))


def test_a_weight_counts_pixels_as_often_as_it_says() -> None:
    """Of every pixel the weight: 2 is the same as the pixel twice, 0 the same as no pixel."""
    logits, labels = 2 * torch.randn(2, 4, 6, 8, generator=seeded(1)), blobs(2, (6, 8))
    weight = torch.zeros(2, 6, 8)
    weight[:, :, :4], weight[:, :, 6:] = 2, 1
    columns = [0, 0, 1, 1, 2, 2, 3, 3, 6, 7]
    expected = supervised(logits[..., columns], labels[..., columns])
    torch.testing.assert_close(supervised(logits, labels, weight), expected)
    torch.testing.assert_close(supervised(logits, labels, torch.ones(2, 6, 8)), supervised(logits, labels))
    whole = weight > 0
    torch.testing.assert_close(supervised(logits, labels, whole), supervised(logits, labels, whole.float()))


def test_pixels_without_weight_get_no_gradient() -> None:
    logits = torch.randn(2, 4, 6, 8, generator=seeded(1)).requires_grad_()
    weight = (torch.rand(2, 6, 8, generator=seeded(2)) < 0.5).float()
    supervised(logits, blobs(2, (6, 8)), weight).backward()
    assert torch.equal(logits.grad.abs().sum(1) > 0, weight > 0)


def test_where_no_pixel_counts_the_loss_is_0() -> None:
    logits = torch.randn(2, 4, 6, 8, generator=seeded(1)).requires_grad_()
    loss = supervised(logits, blobs(2, (6, 8)), torch.zeros(2, 6, 8))
    loss.backward()
    assert float(loss.detach()) == 0 and not logits.grad.any()


def test_a_weight_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weight \(2, 1, 8, 8\)"):
        supervised(torch.zeros(2, 4, 8, 8), torch.zeros(2, 8, 8, dtype=torch.int64), torch.ones(2, 1, 8, 8))
