"""The pseudo-label loss (method 4.3, decision 3), pixel by pixel."""

from __future__ import annotations

import pytest
import torch
from helpers.steps import seeded

from mona_train.losses.unsupervised import unsupervised


def test_pseudo_labels_count_by_how_sure_their_image_is() -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 8, 8, generator=g, requires_grad=True)
    labels = torch.randint(0, 3, (2, 8, 8), generator=g)
    labels[0, :2] = -1
    confidence = torch.rand(2, 8, 8, generator=g)
    total, pixels = torch.tensor(0.0), 0
    for b in range(2):
        known = labels[b] >= 0
        share = float(((confidence[b] >= 0.5) & known).sum() / known.sum())
        for y, x in known.nonzero().tolist():
            total = total - share * logits[b, :, y, x].log_softmax(0)[labels[b, y, x]]
            pixels += 1
    found = unsupervised(logits, labels, confidence, sure=0.5)
    assert found.item() == pytest.approx((total / pixels).item(), rel=1e-5)
    assert unsupervised(logits, labels, torch.zeros_like(confidence)).item() == 0
    assert unsupervised(logits, torch.full_like(labels, -1), confidence).item() == 0


def test_a_pseudo_label_is_sure_from_097_on() -> None:
    """And where nothing else is said, every image counts by its share of sure pixels."""
    logits, labels = torch.zeros(2, 2, 1, 4), torch.zeros(2, 1, 4, dtype=torch.int64)
    confidence = torch.tensor([[[0.97, 0.96, 0.96, 0.99]], [[0.0, 0.5, 0.96, 0.9]]])
    expected = torch.log(torch.tensor(2.0)) * (0.5 + 0) / 2  # half of the first image is sure, nothing of the second
    torch.testing.assert_close(unsupervised(logits, labels, confidence), expected)


def test_weighed_by_pixel_only_sure_ones_teach_and_all_are_divided_by() -> None:
    logits, labels = torch.randn(2, 3, 5, 4, generator=seeded(3)), torch.randint(-1, 3, (2, 5, 4), generator=seeded(4))
    confidence = torch.rand(2, 5, 4, generator=seeded(5))
    known = labels >= 0
    each = -logits.log_softmax(1).gather(1, labels.clamp_min(0)[:, None])[:, 0]
    expected = each[known & (confidence >= 0.5)].sum() / known.sum()
    torch.testing.assert_close(unsupervised(logits, labels, confidence, sure=0.5, by="pixel"), expected)


def test_a_pixel_that_is_right_beyond_doubt_still_counts_in_the_mean() -> None:
    """The published mean is over pixels whose loss is above 0, so certainty raised it (8.1.7)."""
    logits = torch.zeros(1, 2, 1, 2)
    logits[0, 0, 0, 0] = 200  # a cross-entropy of exactly 0
    labels, sure = torch.zeros(1, 1, 2, dtype=torch.int64), torch.ones(1, 1, 2)
    assert unsupervised(logits, labels, sure).item() == pytest.approx(torch.log(torch.tensor(2.0)).item() / 2)


def test_pseudo_labels_count_in_float32_whatever_the_logits_are() -> None:
    logits = torch.randn(2, 3, 8, 8, generator=seeded(6)).bfloat16()
    labels, confidence = torch.randint(0, 3, (2, 8, 8), generator=seeded(7)), torch.rand(2, 8, 8, generator=seeded(8))
    found = unsupervised(logits, labels, confidence, sure=0.5)
    assert found.dtype == torch.float32
    assert torch.equal(found, unsupervised(logits.float(), labels, confidence, sure=0.5))
