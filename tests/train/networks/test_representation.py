"""The representation head: its size, and that one matrix is the whole of the dense chain, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_kernels.ops.pyramid_gather import pyramid_gather
from mona_train.networks import UNet
from mona_train.networks.representation import RepresentationHead

CHANNELS = (12, 9, 6, 4, 3)


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def dense(head: RepresentationHead, features: list[Tensor], size: tuple[int, int]) -> Tensor:
    """method 2.3 as convolutions, every level raised to full size in one step (decision 1): B D H W."""
    raised = [F.interpolate(f, size, mode="bilinear", align_corners=True) for f in features]
    x = raised[0]
    x = x + F.conv2d(x, head.mix[0].weight[..., None, None])
    for layer, level in zip(head.mix[1:], raised[1:4], strict=True):
        x = torch.cat([x, level], 1)
        x = x + F.conv2d(x, layer.weight[..., None, None])
    x = F.conv2d(torch.cat([x, raised[4]], 1), head.project.weight[..., None, None])
    for layer in head.predictor:
        x = F.conv2d(x, layer.weight[..., None, None])
    return x


def test_parameter_counts_are_the_papers() -> None:
    assert RepresentationHead().channels == UNet(4).channels
    assert parameters(RepresentationHead()) == 898_048
    assert parameters(RepresentationHead(dim=496)) == 890_112
    assert parameters(RepresentationHead(dim=496, predictor=True)) == 890_112 + 492_032
    assert parameters(RepresentationHead(predictor=True)) == 898_048 + 2 * 512**2


def test_linear_from_end_to_end() -> None:
    kinds = {type(m) for m in RepresentationHead(predictor=True).modules()}
    assert kinds == {RepresentationHead, nn.ModuleList, nn.Linear}
    assert all("bias" not in name for name, _ in RepresentationHead(predictor=True).named_parameters())


@pytest.mark.parametrize("predictor", [False, True])
@pytest.mark.parametrize("size", [(16, 16), (48, 32), (16, 80)])
def test_the_collapsed_head_is_the_dense_one(size: tuple[int, int], predictor: bool) -> None:
    torch.manual_seed(0)
    head = RepresentationHead(CHANNELS, 10, predictor=predictor).double()
    shapes = [(2, c, size[0] >> s, size[1] >> s) for c, s in zip(CHANNELS, (4, 3, 2, 1, 0), strict=True)]
    features = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    pixels = torch.randperm(2 * size[0] * size[1])[:60]
    assert head.collapsed().shape == (sum(CHANNELS), 10)
    found = head(pyramid_gather(features, pixels, size))
    expected = dense(head, features, size).permute(0, 2, 3, 1).flatten(0, 2)[pixels]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weight = torch.randn_like(found)
    leaves = [*features, *head.parameters()]
    pairs = zip(*(torch.autograd.grad((r * weight).sum(), leaves) for r in (found, expected)), strict=True)
    for a, b in pairs:
        assert b.any()
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_full_size_in_float32() -> None:
    torch.manual_seed(0)
    head, features = RepresentationHead(predictor=True), [torch.randn(1, c, 1, 1) for c in (256, 128, 64, 32, 16)]
    rows = torch.cat(features, 1)[:, :, 0, 0]
    torch.testing.assert_close(head(rows), dense(head, features, (1, 1))[..., 0, 0], rtol=0, atol=1e-5)


def test_without_prediction_it_is_the_head_that_never_had_a_predictor() -> None:
    with_one, without = RepresentationHead(CHANNELS, 10, predictor=True), RepresentationHead(CHANNELS, 10)
    without.load_state_dict({k: v for k, v in with_one.state_dict().items() if not k.startswith("predictor")})
    assert torch.equal(with_one.collapsed(predict=False), without.collapsed())
    assert torch.equal(without.collapsed(predict=False), without.collapsed())
    assert not torch.allclose(with_one.collapsed(), without.collapsed())
