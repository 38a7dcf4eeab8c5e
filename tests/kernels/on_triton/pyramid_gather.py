"""Rows and the gradients of every level, against the reference and its autograd."""

import pytest
import torch
from helpers.triton_device import here, layouts

from mona_kernels.ops.pyramid_gather import reference, triton


def assert_same(features: list[torch.Tensor], pixels: torch.Tensor, size: tuple[int, int]) -> None:
    *features, pixels = here(*features, pixels)
    wide = [f.detach().float().requires_grad_() for f in features]
    expected = reference.pyramid_gather(wide, pixels, size)
    found = triton.pyramid_gather(features, pixels, size)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)).to(found.device)
    grads = triton.pyramid_gather_backward(grad.T.contiguous().T, features, pixels, size)
    for level, ours, theirs in zip(features, grads, torch.autograd.grad(expected, wide, grad), strict=True):
        assert ours.shape == level.shape and ours.dtype == level.dtype
        torch.testing.assert_close(ours.float(), theirs, rtol=4 * torch.finfo(level.dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_odd_pyramid_in_any_type(dtype: torch.dtype) -> None:
    """Corners, the same pixel many times, and none."""
    generator = torch.Generator().manual_seed(0)
    features = [torch.randn(2, *s, generator=generator).to(dtype) for s in ((19, 3, 4), (5, 5, 7), (3, 9, 13))]
    pixels = torch.randint(-1, 2 * 9 * 13, (37,), generator=generator)
    pixels[:8] = torch.tensor([0, 12, 8 * 13, 9 * 13 - 1, 9 * 13, 2 * 9 * 13 - 1, -1, -1])
    pixels[8:20] = 77
    assert_same(features, pixels, (9, 13))


def test_any_layout_one_sample_and_a_level_larger_than_the_map() -> None:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(-1, 2 * 5 * 6, (9,), generator=generator)
    for maps in layouts(torch.randn(2, 3, 4, 3, generator=generator)).values():
        assert_same([maps, torch.randn(2, 2, 1, 1, generator=generator)], pixels, (5, 6))
    assert_same([torch.randn(2, 3, 8, 11, generator=generator)], pixels[::2], (5, 6))
    assert_same([torch.randn(1, 130, 2, 2, generator=generator)], torch.tensor([0, -1]), (1, 1))
    assert_same([torch.randn(1, 3, 2, 2, generator=generator)], torch.empty(0, dtype=torch.int64), (4, 4))
