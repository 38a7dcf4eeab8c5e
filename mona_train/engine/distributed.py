"""What training processes exchange.

Shared, the same in every process: weights, EMA teachers, memory banks, class rings, class sums and counts.
Local to each process: its batch, its random draws, batch-norm statistics of a step, the queries of the contrast.
Gradients are averaged over processes after the backward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor


class Distributed(ABC):
    """One process or many: what the rest of training needs to know about it."""

    rank: int  # of this process
    size: int  # number of processes

    @abstractmethod
    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, concatenated in order of rank, without gradient; shapes must match."""

    @abstractmethod
    def total(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, without gradient."""

    @abstractmethod
    def average_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over all processes."""


class SingleProcess(Distributed):
    """Nothing to exchange."""

    rank, size = 0, 1

    def gather(self, rows: Tensor) -> Tensor:
        return rows.detach()

    def total(self, numbers: Tensor) -> Tensor:
        return numbers.detach()

    def average_(self, tensors: Iterable[Tensor]) -> None:
        pass


class ManyProcesses(Distributed):
    """The processes of torch.distributed, with whichever backend is set up."""

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
