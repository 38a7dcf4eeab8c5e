"""Sums and the gradients of every level, against the reference and its autograd."""

import pytest
import torch
from helpers.triton_device import here, layouts

from mona_kernels.ops.class_means import reference, triton


def assert_same(features: list[torch.Tensor], known: torch.Tensor, classes: int, tolerance: float = 1e-5) -> None:
    *features, known = here(*features, known)
    wide = [f.detach().float().requires_grad_() for f in features]
    expected = reference.class_sums(wide, known, classes)
    found = triton.class_sums(features, known, classes)
    torch.testing.assert_close(found, expected.detach(), rtol=tolerance, atol=tolerance * 10)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)).to(found.device)
    grads = triton.class_sums_backward(grad, features, known, classes)
    for level, ours, theirs in zip(features, grads, torch.autograd.grad(expected, wide, grad), strict=True):
        assert ours.shape == level.shape and ours.dtype == level.dtype
        torch.testing.assert_close(ours.float(), theirs, rtol=4 * torch.finfo(level.dtype).eps, atol=1e-5)


def pyramid(generator: torch.Generator, b: int, *levels: tuple[int, int, int]) -> list[torch.Tensor]:
    return [torch.randn(b, *level, generator=generator) for level in levels]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_odd_pyramid_in_any_type(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    features = [f.to(dtype) for f in pyramid(generator, 2, (19, 3, 4), (5, 5, 7), (3, 9, 13))]
    assert_same(features, torch.randint(-1, 4, (2, 9, 13), generator=generator).short(), 3)


def test_one_sample_one_row_and_a_level_larger_than_the_map() -> None:
    generator = torch.Generator().manual_seed(1)
    known = torch.randint(-1, 2, (1, 5, 6), generator=generator).short()
    assert_same(pyramid(generator, 1, (2, 1, 1), (2, 1, 6), (3, 8, 11)), known, 2)
    assert_same(pyramid(generator, 1, (2, 2, 3), (1, 1, 9)), known[:, :1], 2)


def test_any_layout_of_a_level() -> None:
    generator = torch.Generator().manual_seed(2)
    known = torch.randint(-1, 3, (2, 8, 6), generator=generator).short()
    coarse, full = (layouts(torch.randn(2, 3, h, w, generator=generator)) for h, w in ((4, 3), (8, 6)))
    for pair in zip(coarse.values(), reversed(full.values()), strict=True):
        assert_same([*pair], known, 3)


def test_absent_classes_ids_out_of_range_and_tiles_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "CLASSES", 16)
    generator = torch.Generator().manual_seed(3)
    features = pyramid(generator, 1, (4, 3, 3), (2, 6, 6))
    assert_same(features, torch.full((1, 6, 6), -1, dtype=torch.int16), 2)
    assert_same(features, torch.randint(-5, 300, (1, 6, 6), generator=generator).short(), 3)
    assert_same(features, torch.randint(0, 19, (1, 6, 6), generator=generator).short(), 19)


def test_float64_is_refused_with_advice() -> None:
    features, known = [torch.zeros(1, 2, 2, 2, dtype=torch.float64)], torch.zeros(1, 2, 2, dtype=torch.int16)
    with pytest.raises(TypeError, match=r"float32, bfloat16 or float16, but level 0 is torch.float64; convert it"):
        triton.class_sums(features, known, 1)
