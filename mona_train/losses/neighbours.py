"""L_nn, diversity (method 4.5): the student moves towards the teacher's nearest neighbours in other slices."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.losses.mean_where import mean_where
from mona_train.methods.bank import Bank

TEMPERATURE = 0.1  # of the cosines, with `repel`


def nearest_neighbours(
    student: Tensor, teacher: Tensor, bank: Bank, tags: Tensor | None = None, *, k: int = 5, repel: bool = False
) -> Tensor:
    """Mean over images and their k neighbours z of |u - z|^2 = 2 - 2 u.z, where u is the student's and has length 1.

    student u, teacher v: B D; tags (B, n) say which slices an image shows (negative: unknown).  The neighbours are
    those of v: the published code searched with the student, measured the teacher, and had no gradient (difference 3).
    Rows that show one of the same slices are excluded.  An image with fewer than k other rows uses all of them; one
    with none is left out.

    repel: InfoNCE instead of the distance.  Each neighbour must be nearer than the rows that are not neighbours, so a
    network cannot satisfy the loss by giving every slice the same embedding.
    """
    if student.shape != teacher.shape or (tags is not None and (tags.ndim, len(tags)) != (2, len(student))):
        found = f"{tuple(student.shape)}, {tuple(teacher.shape)}, {None if tags is None else tuple(tags.shape)}"
        raise ValueError(f"expected student and teacher (B, D) and tags (B, n), found {found}")
    rows = bank.rows.detach()
    with torch.autocast(student.device.type, enabled=False):
        near = F.normalize(teacher.detach().float(), dim=1) @ rows.T  # B R
        if tags is not None:
            mine, theirs = tags.to(rows.device)[:, None, :, None], bank.tags[None, :, None, :]
            near = near.masked_fill(((mine == theirs) & (mine >= 0)).any((2, 3)), -torch.inf)
        nearest = near.topk(min(k, len(rows)), dim=1)
        other = nearest.values != -torch.inf  # B k
        cosines = F.normalize(student.float(), dim=1) @ rows.T
        if repel:
            distances = _against_others(cosines, nearest.indices, near == -torch.inf)
        else:
            distances = 2 - 2 * cosines.gather(1, nearest.indices)
        return mean_where(other, distances)


def _against_others(cosines: Tensor, neighbours: Tensor, excluded: Tensor) -> Tensor:
    """-log(e^p / (e^p + sum of e^n)) for each neighbour p (B, k); n: rows that are not neighbours and not excluded.

    cosines B R, neighbours B k (columns), excluded B R.
    """
    logits = cosines / TEMPERATURE
    others = logits.masked_fill(excluded.scatter(1, neighbours, True), -torch.inf).logsumexp(1, keepdim=True)
    return F.softplus(others - logits.gather(1, neighbours))
