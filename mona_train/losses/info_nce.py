"""Contrast with a queue: a row should be nearer to its key (MoCo), or to its neighbours (kNN-MoCo), than to the rest.

He et al., "Momentum contrast for unsupervised visual representation learning", 2020; Van Gansbeke et al., "Revisiting
contrastive methods for unsupervised learning of visual representations", 2021.  Both in float32, even under autocast.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.losses.mean_where import mean_where

NEVER = -1e9  # the logit of a row that does not count; finite, so that a slice without any other row gives no NaN


def info_nce(queries: Tensor, keys: Tensor, queue: Tensor, same: Tensor, *, temperature: float) -> Tensor:
    """Mean over B of -log(e^(q.k / t) / (e^(q.k / t) + sum over the queue of e^(q.n / t))); q, k, n of length 1.

    queries, keys  B D       keys and queue get no gradient
    queue          R D
    same           B R bool  rows that show the query's own slice: they are not its negatives
    """
    with torch.autocast(queries.device.type, enabled=False):
        q, k = F.normalize(queries.float(), dim=1), F.normalize(keys.detach().float(), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negatives = (q @ queue.detach().float().T).masked_fill(same, -torch.inf)
        return -F.log_softmax(torch.cat([positive, negatives], 1) / temperature, 1)[:, 0].mean()


def neighbour_nce(
    queries: Tensor, found: Tensor, queue: Tensor, places: Tensor, same: Tensor, *, k: int, temperature: float
) -> Tensor:
    """Mean over B and the k neighbours of -log softmax over the queue of q.n / t.

    found   B F  where the queries are searched for, among
    places  R F  the same for the queue, row by row: neighbours are found with one feature and compared in another

    A query with fewer than k rows of other slices has these as neighbours; one with none is left out.
    """
    with torch.autocast(queries.device.type, enabled=False):
        near = F.normalize(found.detach().float(), dim=1) @ F.normalize(places.detach().float(), dim=1).T
        nearest = near.masked_fill(same, NEVER).topk(min(k, len(queue)), dim=1)
        counts = nearest.values > NEVER  # B k
        logits = (F.normalize(queries.float(), dim=1) @ queue.detach().float().T / temperature).masked_fill(same, NEVER)
        return mean_where(counts, -F.log_softmax(logits, 1).gather(1, nearest.indices))
