"""The loss and the gradient of the logits, against the reference and its autograd."""

import math

import pytest
import torch
from helpers.triton_device import here, layouts

from mona_kernels.ops.equivariance import reference, triton


def assert_same(
    probabilities: torch.Tensor, mask: torch.Tensor, points: torch.Tensor, logits: torch.Tensor
) -> torch.Tensor:
    probabilities, mask, points, logits = here(probabilities, mask, points, logits)
    wide = logits.detach().float().requires_grad_()
    expected = reference.equivariance(probabilities.float(), mask.float(), points, wide)
    found, weight = triton.equivariance(probabilities, mask, points, logits)
    torch.testing.assert_close(found, expected.detach(), rtol=2e-5, atol=1e-6)
    grad = torch.tensor(1.7, device=found.device)
    ours = triton.equivariance_backward(grad, weight, probabilities, mask, points, logits)
    (theirs,) = torch.autograd.grad(expected, wide, grad)
    assert ours.shape == logits.shape and ours.dtype == logits.dtype
    torch.testing.assert_close(ours.float(), theirs, rtol=4 * max(torch.finfo(ours.dtype).eps, 1e-5), atol=1e-6)
    return ours


def setting(b: int, c: int, h: int, w: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Points turned and moved, a good part of them outside; planes x and y as SamplingGrid keeps them."""
    g = torch.Generator().manual_seed(b * c + h)
    angle = torch.rand(b, generator=g) * 2 - 1
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(b, 2, 2)
    theta = torch.cat([turn * 1.2, torch.rand(b, 2, 1, generator=g) - 0.5], 2)
    grid = torch.nn.functional.affine_grid(theta, [b, c, h, w], align_corners=True)
    points = grid.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    probabilities, logits = (torch.randn(b, c, h, w, generator=g).mul(4).to(dtype) for _ in range(2))
    return [probabilities.softmax(1), torch.rand(b, h, w, generator=g) < 0.6, points, logits]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2, 3, 19, 17), (1, 1, 5, 4), (1, 70, 6, 5), (3, 4, 1, 1)])
def test_shapes_and_types(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    assert_same(*setting(*shape, dtype))


def test_any_layout_and_a_soft_mask() -> None:
    probabilities, mask, points, logits = setting(2, 3, 7, 6)
    for p, q in zip(layouts(probabilities).values(), reversed(layouts(logits).values()), strict=True):
        assert_same(p, mask.float().mul(0.5).mT.contiguous().mT, points, q)


def test_certain_answers_and_points_far_outside_or_not_numbers() -> None:
    """Probabilities of 0 and logits whose softmax is 0 meet the clamp; its gradient is 0 there."""
    probabilities, mask, points, logits = setting(2, 3, 8, 9)
    probabilities = torch.nn.functional.one_hot(probabilities.argmax(1), 3).movedim(3, 1).float()
    points[:, :2] = 50
    points[:, 2, :, 0] = -3
    grad = assert_same(probabilities, mask, points, logits * 30)
    assert not grad[:, :, :3].any()
    points[:, 3, :4], points[:, 3, 4:7], points[:, 3, 7:] = math.nan, -math.inf, 1e30
    grad = triton.equivariance_backward(
        torch.ones(()).to(grad.device), torch.ones(2).to(grad.device), *here(probabilities, mask, points, logits)
    )
    assert grad.isfinite().all() and not grad[:, :, 3].any()


def test_nothing_masked_is_0() -> None:
    probabilities, mask, points, logits = setting(1, 2, 4, 4)
    assert not assert_same(probabilities, torch.zeros_like(mask), points, logits).any()
