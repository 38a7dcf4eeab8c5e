"""The U-Net of method 2.1: its size to the last parameter, its features, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mona_train.networks import UNet


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("classes", "total"), [(3, 1_813_619), (4, 1_813_764), (8, 1_814_344)])
def test_parameter_counts_are_the_papers(classes: int, total: int) -> None:
    net = UNet(classes)
    assert parameters(net) == total
    assert (parameters(net.encoder), parameters(net.decoder), parameters(net.head)) == (
        1_180_464,
        632_720,
        145 * classes,
    )


def test_features_run_from_the_bottleneck_to_full_size() -> None:
    net = UNet(4)
    out = net(torch.rand(2, 1, 64, 96))
    assert out.logits.shape == (2, 4, 64, 96)
    assert [tuple(f.shape[1:]) for f in out.features] == [
        (256, 4, 6), (128, 8, 12), (64, 16, 24), (32, 32, 48), (16, 64, 96)
    ]  # fmt: skip
    assert tuple(f.shape[1] for f in out.features) == net.channels
    assert out.bottleneck is out.features[0]
    torch.testing.assert_close(out.logits, net.head(out.features[-1]))


def test_layers_are_those_of_the_paper() -> None:
    net = UNet(4)
    dropout = [m.p for m in net.encoder.modules() if isinstance(m, nn.Dropout)]
    assert dropout == [0.05, 0.1, 0.2, 0.3, 0.5]
    assert all(m.p == 0 for m in net.decoder.modules() if isinstance(m, nn.Dropout))
    assert all(m.negative_slope == 0.01 for m in net.modules() if isinstance(m, nn.LeakyReLU))
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 18 and all((m.momentum, m.eps) == (0.1, 1e-5) for m in norms)
    assert not any(isinstance(m, nn.ConvTranspose2d) for m in net.modules())
    assert net.head.kernel_size == (3, 3)


def test_an_up_block_narrows_raises_with_aligned_corners_and_puts_the_skip_first() -> None:
    up = UNet(4).decoder[3].eval()
    deep, skip = torch.randn(1, 32, 4, 4), torch.randn(1, 16, 8, 8)
    seen: list[torch.Tensor] = []
    up.block.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    up(deep, skip)
    assert torch.equal(seen[0][:, :16], skip)
    narrow, raised = up.narrow(deep), seen[0][:, 16:]
    torch.testing.assert_close(raised[..., [0, 0, -1], [0, -1, -1]], narrow[..., [0, 0, -1], [0, -1, -1]])
    torch.testing.assert_close(raised[..., 0, 1], (4 * narrow[..., 0, 0] + 3 * narrow[..., 0, 1]) / 7)  # 3/7 of a step


def test_every_parameter_learns() -> None:
    net = UNet(4, width=0.25)
    net(torch.rand(2, 1, 32, 32)).logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert sum(bool(p.grad.any()) for p in net.parameters()) >= 46 - 18  # a bias before batch norm may have gradient 0


def test_width_scales_every_level() -> None:
    half = UNet(4, width=0.5)
    assert half.channels == (128, 64, 32, 16, 8)
    assert parameters(half) < parameters(UNet(4)) / 3.5
    assert UNet(4, inputs=3, width=0.25)(torch.rand(2, 3, 32, 16)).logits.shape == (2, 4, 32, 16)


@pytest.mark.parametrize("shape", [(1, 1, 250, 256), (1, 1, 256, 24), (1, 256, 256)])
def test_other_sizes_are_refused_in_words(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"multiples of 16, found .*; resize or pad"):
        UNet(4)(torch.zeros(shape))
