"""What one training process knows of the others.

Global, the same in every process: weights, EMA teachers, memory banks, class rings, class sums and counts.
Of each process alone: its batch, its random draws, batch-norm statistics of a step, the queries of the contrast.
Gradients are averaged over processes after the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


class World:
    """A process on its own: nothing to exchange."""

    rank, size = 0, 1

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of every process below each other, in order of rank, without gradient; shapes must agree."""
        return rows.detach()

    def total(self, numbers: Tensor) -> Tensor:
        """The sum over processes, without gradient."""
        return numbers.detach()

    def average_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over processes."""


class Processes(World):
    """The processes of torch.distributed, on whatever backend it was set up with."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather(self, rows: Tensor) -> Tensor:
        mine = rows.detach().contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)
        return torch.cat(parts)

    def total(self, numbers: Tensor) -> Tensor:
        summed = numbers.detach().clone()
        dist.all_reduce(summed)
        return summed

    def average_(self, tensors: Iterable[Tensor]) -> None:
        """One message for all of them: the U-Net has hundreds of small tensors."""
        many = list(tensors)
        if not many:
            return
        flat = torch.cat([t.detach().flatten().float() for t in many])
        dist.all_reduce(flat)
        flat /= self.size
        for tensor, mean in zip(many, flat.split([t.numel() for t in many]), strict=True):
            tensor.detach().copy_(mean.view_as(tensor))
