"""The projector's widths and norm, and the precision in which a part of a U-Net is computed."""

from __future__ import annotations

import torch
from helpers.steps import CLASSES
from torch import nn

from mona_train.networks.precision import as_precise_as
from mona_train.networks.projector import Projector
from mona_train.networks.unet import UNet


def test_widths_and_norm_are_what_was_asked_for() -> None:
    plain, normed = Projector(256, 256, 128), Projector(256, 512, 64, batch_norm=True)
    assert plain(torch.rand(3, 256)).shape == (3, 128) and normed(torch.rand(3, 256)).shape == (3, 64)
    assert sum(p.numel() for p in plain.parameters()) == 257 * 256 + 257 * 128
    assert sum(p.numel() for p in normed.parameters()) == 257 * 512 + 2 * 512 + 513 * 64
    assert [type(m) for m in normed] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]


def test_a_part_is_computed_as_precisely_as_the_whole() -> None:
    unet, images = UNet(CLASSES, width=0.25), torch.rand(2, 1, 32, 32)
    for dtype in (torch.float32, torch.bfloat16):
        with as_precise_as(torch.zeros(1, dtype=dtype)):
            assert unet(images).logits.dtype == unet.encode(images)[-1].dtype == dtype
