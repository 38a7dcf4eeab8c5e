"""The running statistics of batch norm, counted anew on slices as a network will be asked about them.

In training it sees rotated, jittered and mixed slices, and the statistics are of those.  Measured on whole slices as
they are, the same weights score up to a point of DSC more (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

BATCHES = 16  # of the run's size: about two hundred slices


@torch.no_grad()  # type: ignore[untyped-decorator]
def recount_(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Means and variances become the averages over some batches of images; the network is left in evaluation mode."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momentum = [m.momentum for m in norms]
    network.eval()  # no dropout
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # a plain average
        m.train()
    try:
        for images in batches:
            network(images)
    finally:
        for m, before in zip(norms, momentum, strict=True):
            m.momentum = before
        network.eval()
