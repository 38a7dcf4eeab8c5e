"""L_eqv against both KL divergences written out, and what must not matter to it (METHOD 4.4, 9.5)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mona_kernels.ops.equivariance import equivariance_loss


def scene(count: int = 2, classes: int = 4, side: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = Generator().manual_seed(0)
    target = torch.randn(count, classes, side, side, generator=g, dtype=torch.float64).softmax(1)
    logits = torch.randn(count, classes, side, side, generator=g, dtype=torch.float64)
    mask = torch.rand(count, side, side, generator=g, dtype=torch.float64)
    return target, torch.ones(count, side, side, dtype=torch.float64), logits, mask


@pytest.mark.parametrize("classes", [2, 3, 8])
def test_it_is_the_sum_of_both_kl_divergences_over_the_mask(classes: int) -> None:
    target, inside, logits, mask = scene(classes=classes)
    log_q, log_p = logits.log_softmax(1), target.log()
    both = F.kl_div(log_q, log_p, log_target=True, reduction="none") + F.kl_div(
        log_p, log_q, log_target=True, reduction="none"
    )
    images = [(m * k.sum(0)).sum() / m.sum() for m, k in zip(mask, both, strict=True)]
    expected = torch.stack(images).mean()
    assert equivariance_loss(target, inside, logits, mask).item() == pytest.approx(expected.item(), rel=1e-5)


def test_equal_predictions_cost_nothing_also_where_they_are_certain() -> None:
    _, inside, logits, mask = scene()
    for sharpness in (1.0, 50.0):  # 50: probabilities below the clamp
        found = equivariance_loss((sharpness * logits).softmax(1), inside, sharpness * logits, mask)
        assert found.item() == pytest.approx(0, abs=1e-6)


def test_what_comes_partly_from_beyond_the_frame_is_rescaled_and_what_is_beyond_does_not_count() -> None:
    target, inside, logits, mask = scene()
    whole = equivariance_loss(target, inside, logits, mask)
    partly = torch.rand(inside.shape, generator=Generator().manual_seed(1), dtype=torch.float64) * 0.9 + 0.1
    assert equivariance_loss(target * partly[:, None], partly, logits, mask).item() == pytest.approx(whole.item())

    inside[:, :3] = 0
    target[:, :, :3] = 0
    mask[:, 3:] = 0
    outside_only = equivariance_loss(target, inside, logits.requires_grad_(), mask)
    assert outside_only.item() == 0
    outside_only.backward()
    assert logits.grad is not None and not logits.grad.any()


def test_an_image_without_a_masked_pixel_adds_nothing_and_no_nan() -> None:
    target, inside, logits, mask = scene()
    mask[1] = 0
    alone = equivariance_loss(target[:1], inside[:1], logits[:1], mask[:1])
    assert equivariance_loss(target, inside, logits, mask).item() == pytest.approx(alone.item() / 2)


def test_only_the_logits_get_a_gradient() -> None:
    target, inside, logits, mask = scene()
    for t in (target, logits, mask):
        t.requires_grad_()
    equivariance_loss(target, inside, logits, mask).backward()
    assert target.grad is None and mask.grad is None
    assert logits.grad is not None and logits.grad.abs().sum() > 0


def test_it_is_computed_in_single_precision_at_least() -> None:
    target, inside, logits, mask = (t.to(torch.bfloat16) for t in scene())
    assert equivariance_loss(target, inside, logits, mask).dtype == torch.float32
