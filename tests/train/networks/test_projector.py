"""The projector's widths and norm."""

from __future__ import annotations

import torch
from torch import nn

from mona_train.networks.projector import Projector


def test_widths_and_norm_are_what_was_asked_for() -> None:
    plain, normed = Projector(256, 256, 128), Projector(256, 512, 64, batch_norm=True)
    assert plain(torch.rand(3, 256)).shape == (3, 128) and normed(torch.rand(3, 256)).shape == (3, 64)
    assert sum(p.numel() for p in plain.parameters()) == 257 * 256 + 257 * 128
    assert sum(p.numel() for p in normed.parameters()) == 257 * 512 + 2 * 512 + 513 * 64
    assert [type(m) for m in normed] == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
