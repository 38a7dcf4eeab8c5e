"""`class_sums` are the sums of the dense upsampling over each class, and nothing dense is made for them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mona_kernels.ops.class_means import class_sums, reference

CHANNELS = (40, 20, 10, 5, 3)


def scene(
    batch: int, size: tuple[int, int], classes: int, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], Tensor]:
    """Features with a mean far from 0, as after a ReLU, and labels with -1, 255 and an absent last class."""
    generator = torch.Generator().manual_seed(classes)
    shapes = [(batch, c, size[0] >> s, size[1] >> s) for c, s in zip(CHANNELS, (4, 3, 2, 1, 0), strict=True)]
    features = [torch.rand(shape, generator=generator, dtype=dtype) for shape in shapes]
    labels = torch.randint(-1, max(classes - 1, 1), (batch, *size), generator=generator)
    labels[:, ::5, ::3] = 255
    return features, labels.short()


def dense_sums(features: list[Tensor], labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    size = labels.shape[1:]
    raised = torch.cat([F.interpolate(f, size, mode="bilinear", align_corners=True) for f in features], 1)
    pixels, labels = raised.permute(0, 2, 3, 1).flatten(0, 2), labels.flatten()
    own = [pixels[labels == c] for c in range(classes)]
    return torch.stack([p.sum(0) for p in own]), torch.tensor([len(p) for p in own])


@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 3, 4, 8]),
    st.sampled_from(["plain", "channels_last", "turned"]),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_sums_are_those_of_dense_upsampling(batch: int, rows: int, columns: int, classes: int, layout: str) -> None:
    features, labels = scene(batch, (16 * rows, 16 * columns), classes)
    if layout == "channels_last":
        features = [f.contiguous(memory_format=torch.channels_last) for f in features]
    if layout == "turned":
        features = [f.transpose(2, 3).contiguous().transpose(2, 3) for f in features]
        labels = labels.transpose(1, 2).contiguous().transpose(1, 2)
    for f in features:
        f.requires_grad_()
    sums = class_sums(features, labels, classes)
    expected, pixels = dense_sums(features, labels, classes)
    torch.testing.assert_close(sums, expected, rtol=1e-12, atol=1e-10)
    if classes > 1:
        assert pixels[-1] == 0 and not sums[-1].any()
    weight = torch.randn(sums.shape, generator=torch.Generator().manual_seed(0), dtype=sums.dtype)
    pairs = zip(*(torch.autograd.grad((s * weight).sum(), features) for s in (sums, expected)), strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-10)


def test_float32_means_at_full_size() -> None:
    features, labels = scene(2, (256, 192), 4, torch.float32)
    sums = class_sums(features, labels, 4)
    expected, counts = dense_sums([f.double() for f in features], labels, 4)
    n = counts.clamp_min(1)[:, None]
    torch.testing.assert_close(sums.double() / n, expected / n, rtol=0, atol=1e-5)


def test_half_precision_features_are_added_up_in_float32() -> None:
    features, labels = scene(2, (64, 64), 4)
    halves = [f.bfloat16() for f in features]
    sums = class_sums(halves, labels, 4)
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums.double(), dense_sums([f.double() for f in halves], labels, 4)[0], rtol=1e-5, atol=0)


def test_sizes_that_are_no_power_of_two_apart() -> None:
    features, labels = [torch.rand(1, 2, 5, 7).double(), torch.rand(1, 3, 1, 1).double()], torch.zeros(1, 12, 9).short()
    torch.testing.assert_close(class_sums(features, labels, 1), dense_sums(features, labels, 1)[0])


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor any operation returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_nothing_dense_is_made() -> None:
    features, labels = scene(2, (64, 64), 4)
    with Largest() as largest:
        reference.class_sums(features, labels, 4)
    assert largest.elements == 4 * labels.numel()  # the masks
    with Largest() as native:
        class_sums(features, labels, 4)
    assert native.elements <= 4 * labels.numel()
    with Largest() as dense:
        dense_sums(features, labels, 4)
    assert dense.elements >= sum(CHANNELS) * labels.numel()  # what the same check says of the dense way
