"""L_eqv against a warp and both KL divergences written out, and what must not matter to it (method 4.4)."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mona_kernels.ops.equivariance import equivariance

Scene = tuple[Tensor, Tensor, Tensor, Tensor]


def still(count: int, height: int, width: int) -> Tensor:
    """The points of the pixels themselves."""
    y, x = torch.linspace(-1, 1, height).double(), torch.linspace(-1, 1, width).double()
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).expand(count, -1, -1, -1)


def scene(count: int = 2, classes: int = 4, size: tuple[int, int] = (9, 12), *, move: float = 0.0) -> Scene:
    """`move` 0: T leaves everything in place; 0.5: points up to half a frame away, some beyond it."""
    g = Generator().manual_seed(0)
    probabilities = torch.randn(count, classes, *size, generator=g, dtype=torch.float64).softmax(1)
    logits = torch.randn(count, classes, *size, generator=g, dtype=torch.float64)
    mask = torch.rand(count, *size, generator=g, dtype=torch.float64)
    points = still(count, *size) + move * torch.randn(count, *size, 2, generator=g, dtype=torch.float64)
    return probabilities, mask, points, logits


def by_hand(probabilities: Tensor, mask: Tensor, points: Tensor, logits: Tensor) -> Tensor:
    """One pixel at a time."""
    count, classes, height, width = probabilities.shape
    images = []
    for b in range(count):
        total, weights = logits.new_zeros(()), 0.0
        for i in range(height):
            for j in range(width):
                x, y = (
                    (float(points[b, i, j, 0]) + 1) / 2 * (width - 1),
                    (float(points[b, i, j, 1]) + 1) / 2 * (height - 1),
                )
                inside, weight, target = 0.0, 0.0, torch.zeros(classes, dtype=torch.float64)
                for row in range(height):
                    for column in range(width):
                        share = max(0.0, 1 - abs(x - column)) * max(0.0, 1 - abs(y - row))
                        inside += share
                        weight += share * float(mask[b, row, column])
                        target += share * probabilities[b, :, row, column]
                if inside == 0:
                    continue
                p, q = (target / inside).clamp_min(1e-6), logits[b, :, i, j].softmax(0)
                total = total + weight * ((p * (p / q).log()).sum() + (q * (q / p).log()).sum())
                weights += weight
        images.append(total / (weights + 1e-7))
    return torch.stack(images).mean()


@pytest.mark.parametrize(("classes", "move"), [(2, 0.0), (3, 0.7), (8, 0.2)])
def test_it_is_the_warp_and_both_kl_divergences_over_the_mask(classes: int, move: float) -> None:
    given = scene(classes=classes, size=(5, 7), move=move)
    logits = given[3].requires_grad_()
    found, expected = equivariance(*given), by_hand(*given)
    # a point may fall within 1e-15 of the frame's edge: inside for one, outside for the other
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    a, b = (torch.autograd.grad(loss, logits)[0] for loss in (found, expected))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_equal_predictions_cost_nothing_also_where_they_are_certain() -> None:
    _, mask, points, logits = scene()
    for sharpness in (1.0, 50.0):  # 50: probabilities below the clamp
        found = equivariance((sharpness * logits).softmax(1), mask, points, sharpness * logits)
        assert found.item() == pytest.approx(0, abs=1e-6)


def test_a_prediction_below_the_clamp_gets_no_gradient() -> None:
    """log q stops at log 1e-6, whatever the logits say beyond it."""
    probabilities, mask, points, _ = scene(classes=2, size=(1, 1))
    losses = []
    for margin in (14.0, 40.0):
        logits = torch.tensor([0.0, margin], dtype=torch.float64).view(1, 2, 1, 1).expand(2, -1, -1, -1).clone()
        losses.append(equivariance(probabilities, mask, points, logits.requires_grad_()))
        losses[-1].backward()
        assert logits.grad is not None and logits.grad.abs().max() < 1e-5
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)


def test_what_comes_partly_from_beyond_the_frame_is_rescaled_and_what_is_beyond_does_not_count() -> None:
    """Half a pixel out: every tap within the frame is on the edge, so the target is the edge's own distribution."""
    probabilities, mask, points, logits = scene(size=(1, 6))
    mask[:] = 1
    probabilities[..., 1:] = probabilities[..., :1]
    out = points.clone()
    out[..., 0] = points[..., 0] - 0.3
    inner = (out[..., 0] > -1 - 2 / 5)[0, 0]
    assert 0 < inner.sum() <= 6 and (out[..., 0] < -1).any()
    expected = equivariance(probabilities, mask, points, logits)
    mask_seen = F.grid_sample(mask[:, None], out, align_corners=True)[:, 0]
    mask_seen = mask_seen * (mask_seen > 0)
    kl = ((probabilities - logits.softmax(1)) * (probabilities.log() - logits.log_softmax(1))).sum(1)
    by_weight = (mask_seen * kl).sum((1, 2)) / mask_seen.sum((1, 2))
    assert equivariance(probabilities, mask, out, logits).item() == pytest.approx(by_weight.mean().item(), rel=1e-6)
    assert expected.item() == pytest.approx(kl.mean().item(), rel=1e-6)

    outside_only = equivariance(probabilities, mask, points + 5, logits.requires_grad_())
    assert outside_only.item() == 0
    outside_only.backward()
    assert logits.grad is not None and not logits.grad.any()


def test_an_image_without_a_masked_pixel_adds_nothing_and_no_nan() -> None:
    probabilities, mask, points, logits = scene(move=0.1)
    mask[1] = 0
    alone = equivariance(probabilities[:1], mask[:1], points[:1], logits[:1])
    assert equivariance(probabilities, mask, points, logits).item() == pytest.approx(alone.item() / 2)


def test_only_the_logits_get_a_gradient() -> None:
    given = scene(move=0.1)
    for t in given:
        t.requires_grad_()
    equivariance(*given).backward()
    *others, logits = given
    assert all(t.grad is None for t in others)
    assert logits.grad is not None and logits.grad.abs().sum() > 0


def test_it_is_computed_in_single_precision_at_least() -> None:
    probabilities, mask, points, logits = (t.to(torch.bfloat16) for t in scene())
    assert equivariance(probabilities, mask, points, logits).dtype == torch.float32
