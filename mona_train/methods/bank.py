"""`Bank`: the latest embeddings of the teacher, first in, first out (method 3.2)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

UNKNOWN = -1  # the tag of a row whose slice is not known


class Bank(nn.Module):  # type: ignore[misc]
    """A ring of `size` embeddings (along the last axis), normalised to length 1, without gradient.

    Everything is in buffers, so a bank is saved with the run.  Any number of rows can be added at a time; the published
    bank needs a batch size that divides 36.
    """

    kept: Tensor
    tags: Tensor  # size x slices, int64: which slices a row shows
    written: Tensor  # number of rows ever added: gives the next slot and whether the ring is full

    def __init__(self, size: int, shape: tuple[int, ...], *, slices: int = 1) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(size, *shape))
        self.register_buffer("tags", torch.full((size, slices), UNKNOWN))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))
        self._written = 0  # the same, known without waiting for a GPU
        self.register_load_state_dict_post_hook(_recount)

    def __len__(self) -> int:
        return len(self.kept)

    @property
    def full(self) -> bool:
        """Before that the rows must not be used: an all-zero row has cosine 0 with everything (difference 2)."""
        return self._written >= len(self)

    @property
    def rows(self) -> Tensor:
        """Entries (size, *shape), in the order of their slots."""
        if not self.full:
            raise RuntimeError(f"the bank has {self._written} of {len(self)} rows; check `full` first")
        return self.kept

    def add(self, rows: Tensor, tags: Tensor | None = None) -> None:
        """Add rows (n, *shape), the oldest first, in place of the oldest n.  Of more than `size` the last are kept."""
        if rows.shape[1:] != self.kept.shape[1:] or (
            tags is not None and tags.shape != (len(rows), self.tags.shape[1])
        ):
            shape = ", ".join(map(str, self.kept.shape[1:]))
            found = f"{tuple(rows.shape)} and {None if tags is None else tuple(tags.shape)}"
            raise ValueError(f"expected rows (n, {shape}) and tags (n, {self.tags.shape[1]}) or none, found {found}")
        count, size = len(rows), len(self)
        first = max(0, count - size)  # on a GPU, two writes to one slot have no defined order
        slots = torch.arange(self._written + first, self._written + count, device=self.kept.device) % size
        # out of place: the loss of this step may still need the rows as they are for its backward pass
        self.kept = self.kept.index_copy(0, slots, F.normalize(rows[first:].detach().to(self.kept), dim=-1))
        known = (
            self.tags.new_full((len(slots), self.tags.shape[1]), UNKNOWN)
            if tags is None
            else tags[first:].to(self.tags)
        )
        self.tags = self.tags.index_copy(0, slots, known)
        self._written += count
        self.written.fill_(self._written)


def _recount(bank: Bank, _: Any) -> None:
    bank._written = int(bank.written)
