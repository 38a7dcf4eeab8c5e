"""`pyramid_gather` is the dense upsampling at some pixels, in values and gradients, and its gradients repeat."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mona_kernels.ops.class_means import interpolation
from mona_kernels.ops.pyramid_gather import pyramid_gather

CHANNELS = (7, 5, 4, 3, 2)


def pyramid(batch: int, size: tuple[int, int], dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, c, size[0] >> s, size[1] >> s) for c, s in zip(CHANNELS, (4, 3, 2, 1, 0), strict=True)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def dense_rows(features: list[Tensor], pixels: Tensor, size: tuple[int, int]) -> Tensor:
    raised = [F.interpolate(f, size, mode="bilinear", align_corners=True) for f in features]
    return torch.cat(raised, 1).permute(0, 2, 3, 1).flatten(0, 2)[pixels]


def some(count: int, batch: int, size: tuple[int, int], seed: int = 1) -> Tensor:
    """The corners of the batch and pixels drawn with replacement."""
    total = batch * size[0] * size[1]
    drawn = torch.randint(0, total, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.tensor([0, size[1] - 1, total - size[1], total - 1]), drawn])


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.sampled_from(["plain", "channels_last", "turned"]))
@settings(max_examples=15, deadline=None)
def test_values_and_gradients_are_those_of_dense_upsampling(batch: int, rows: int, columns: int, layout: str) -> None:
    size = (16 * rows, 16 * columns)
    features = pyramid(batch, size)
    if layout == "channels_last":
        features = [f.detach().contiguous(memory_format=torch.channels_last).requires_grad_() for f in features]
    if layout == "turned":
        features = [f.detach().transpose(2, 3).contiguous().transpose(2, 3).requires_grad_() for f in features]
    pixels = some(40, batch, size)
    found, expected = pyramid_gather(features, pixels, size), dense_rows(features, pixels, size)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=found.dtype)
    pairs = zip(*(torch.autograd.grad((r * weight).sum(), features) for r in (found, expected)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_float32_at_full_size() -> None:
    size = (256, 192)
    features = pyramid(2, size, torch.float32)
    pixels = some(500, 2, size)
    torch.testing.assert_close(
        pyramid_gather(features, pixels, size), dense_rows(features, pixels, size), rtol=0, atol=1e-4
    )  # torch finds positions in float32: 1e-5 of a pixel off at 255
    exact = dense_rows([f.double() for f in features], pixels, size)
    torch.testing.assert_close(pyramid_gather(features, pixels, size).double(), exact, rtol=0, atol=2e-6)


def test_gradcheck() -> None:
    features = pyramid(2, (16, 32))
    pixels = torch.cat([some(5, 2, (16, 32)), torch.tensor([-1])])
    assert torch.autograd.gradcheck(lambda *f: pyramid_gather(f, pixels, (16, 32)), tuple(features), fast_mode=True)


def test_a_level_of_full_size_is_copied_to_the_bit() -> None:
    f = torch.randn(2, 3, 17, 31)
    pixels = some(50, 2, (17, 31))
    assert torch.equal(pyramid_gather([f], pixels, (17, 31)), f.permute(0, 2, 3, 1).flatten(0, 2)[pixels])
    assert torch.equal(interpolation(17, 17, f), torch.eye(17))


def test_no_pixel_is_a_row_of_zeros_without_gradient() -> None:
    features = pyramid(1, (16, 16))
    rows = pyramid_gather(features, torch.tensor([-1, 3, -1]), (16, 16))
    assert not rows[[0, 2]].any() and rows[1].all()
    rows[[0, 2]].sum().backward()
    assert not any(f.grad.any() for f in features)


def test_backward_repeats_to_the_bit_on_two_threads() -> None:
    """Thousands of rows fall on four samples: a change of order shows in the last bits, as it does with index_put_."""
    size = (32, 32)
    features = [torch.randn(1, 16, 2, 2, requires_grad=True)]
    pixels = some(20_000, 1, size)
    weight = torch.randn(len(pixels), 16)
    torch.set_num_threads(2)
    try:
        runs = [
            torch.autograd.grad((pyramid_gather(features, pixels, size) * weight).sum(), features) for _ in range(4)
        ]
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


def test_half_precision_features_are_added_up_in_float32() -> None:
    halves = [f.detach().bfloat16().requires_grad_() for f in pyramid(1, (32, 32))]
    singles = [f.detach().float().requires_grad_() for f in halves]
    pixels = some(3000, 1, (32, 32))
    rows = pyramid_gather(halves, pixels, (32, 32))
    assert rows.dtype == torch.float32
    assert torch.equal(rows, pyramid_gather(singles, pixels, (32, 32)))
    a = torch.autograd.grad(rows.sum(), halves)
    b = torch.autograd.grad(pyramid_gather(singles, pixels, (32, 32)).sum(), singles)
    assert all(torch.equal(x, y.bfloat16()) for x, y in zip(a, b, strict=True))
