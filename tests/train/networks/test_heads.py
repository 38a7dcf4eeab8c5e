"""The heads of method 2.2: their size to the last parameter, and every window in one call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mona_train.networks import UNet
from mona_train.networks.heads import LocalHead, LocalPredictor, Norm, Predictor, ProjectionHead


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts_are_those_of_the_method() -> None:
    assert parameters(ProjectionHead(UNet(4).channels[0])) == 395_264
    assert parameters(Predictor()) == parameters(LocalPredictor()) == 526_336
    assert parameters(LocalHead(4)) == (4 * 8 + 8) + (8 * 8 + 8)
    assert parameters(ProjectionHead(256, norm="ln")) == 395_264
    assert parameters(ProjectionHead(256, norm="none")) == 395_264 - 2 * 512


@pytest.mark.parametrize(
    ("norm", "kind"), [("bn", nn.BatchNorm1d), ("ln", nn.LayerNorm), ("none", nn.Identity)]
)  # fmt: skip
def test_layers(norm: Norm, kind: type[nn.Module]) -> None:
    for head in (ProjectionHead(256, norm=norm), Predictor(norm=norm), LocalPredictor(norm=norm)):
        assert [type(m) for m in head] == [nn.Linear, kind, nn.ReLU, nn.Linear]
    assert [type(m) for m in LocalHead(4).cells] == [nn.Conv2d, nn.ReLU, nn.Conv2d]


def test_the_norm_is_that_of_batches_where_none_is_named() -> None:
    for head in (ProjectionHead(256), Predictor(), LocalPredictor()):
        assert type(head[1]) is nn.BatchNorm1d


def test_another_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="one of bn, ln, none, found 'batch'"):
        Predictor(norm="batch")


@pytest.mark.parametrize("width", [0.25, 1.0])
def test_the_projection_takes_the_mean_of_any_bottleneck(width: float) -> None:
    unet = UNet(4, width=width)
    head = ProjectionHead(unet.channels[0])
    bottleneck = torch.randn(6, unet.channels[0], 4, 3)
    first, norm, _, last = head
    expected = last(norm(first(bottleneck.mean((2, 3)))).relu())
    torch.testing.assert_close(head(bottleneck), expected)
    assert expected.shape == (6, 512)


@pytest.mark.parametrize("classes", [2, 3, 4, 8])
@pytest.mark.parametrize("side", [64, 32, 12])
def test_windows_become_512_numbers_for_every_number_of_classes(classes: int, side: int) -> None:
    head = LocalHead(classes)
    windows = torch.randn(2, 5, classes, side, side)
    embedded = head(windows)
    assert embedded.shape == (2, 5, 512)
    one_by_one = [head(windows[b, i, None])[0] for b in range(2) for i in range(5)]
    torch.testing.assert_close(embedded.flatten(0, 1), torch.stack(one_by_one))


def test_a_window_is_pooled_to_8_x_8_before_its_pixels_are_embedded() -> None:
    head, window = LocalHead(3), torch.randn(3, 64, 64)
    cells = window.view(3, 8, 8, 8, 8).mean((2, 4))
    first, _, last = head.cells
    hidden = torch.einsum("oc,cyx->oyx", first.weight[:, :, 0, 0], cells) + first.bias[:, None, None]
    expected = torch.einsum("oc,cyx->oyx", last.weight[:, :, 0, 0], hidden.relu()) + last.bias[:, None, None]
    torch.testing.assert_close(head(window[None])[0], expected.flatten())


def test_the_local_predictor_is_shared_by_windows_and_its_norm_sees_them_all() -> None:
    torch.manual_seed(0)
    head, rows = LocalPredictor(), torch.randn(2, 36, 512)
    first, norm, _, last = head
    hidden = first(rows.flatten(0, 1))
    normed = F.batch_norm(hidden, None, None, norm.weight, norm.bias, training=True)
    torch.testing.assert_close(head(rows), last(normed.relu()).view(2, 36, 512))
