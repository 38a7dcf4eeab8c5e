"""MoCo v2 as pre-training (method 6): a slice's embedding should be nearer to that of its other view than to those of
other slices, which the teacher has put into a queue.

Chen et al., "Improved baselines with momentum contrastive learning", 2020.
L = L_sup - mean log(e^(q.k / t) / (e^(q.k / t) + sum over the queue of e^(q.n / t))), q: student's, k, n: teacher's.
Differs from the public code: t = 0.2 as v2 recommends, not 0.07; a queue of 1,200 instead of 65,536 rows, because ACDC
has 1,312 training slices; rows of the query's own slice are no negatives; the run's EMA decay; one crop of the two.
The head's name is its own: in MONA's fine-tuning another kind of head follows, which starts afresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.losses.info_nce import info_nce
from mona_train.methods import contrastive
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.contrastive import Contrastive, Views, encoded, head, pooled, same_slice
from mona_train.networks.projector import Projector
from mona_train.networks.unet import UNet, UNetOutput

HEAD = "moco_projector"


@dataclass(frozen=True)
class Settings(contrastive.Settings):
    """MoCo v2, method 6."""

    queue: int = 1200  # slices
    temperature: float = 0.2
    dim: int = 128  # of the embedding

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "moco", 1, None, "queue", "dim")
        within(self, "moco", 1e-3, None, "temperature")


class Rows(NamedTuple):
    """Of all slices of a step: queries of the first view, keys of the second, and what both are computed from."""

    queries: Tensor  # B D
    keys: Tensor  # B D
    seen: Tensor  # B C, the student's pooled bottleneck
    taught: Tensor  # B C, the teacher's
    slices: Tensor  # B 1


class MoCo(Contrastive):
    name = "moco"
    Settings = Settings
    averaged = ("unet", HEAD)
    cost = 1.2  # the teacher's encoder

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        self.queue = Bank(settings.queue, (settings.dim,))

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        return {"unet": unet, HEAD: Projector(unet.channels[0], unet.channels[0], self.settings.dim)}

    def contrast(self, step: Step, views: Views, out: UNetOutput) -> Losses:
        seen = pooled(out.bottleneck)
        with torch.no_grad():
            taught = encoded(step.teacher["unet"], views.second)
            keys = head(step.teacher, HEAD, taught)
        rows = Rows(head(step.student, HEAD, seen), keys, seen, taught, views.slices)
        found = self.compare(rows) if self.queue.full else {}
        self.remember(step, rows)
        return found

    def compare(self, rows: Rows) -> Losses:
        """With the queue as it was before this step."""
        same = same_slice(rows.slices, self.queue.tags)
        loss = info_nce(rows.queries, rows.keys, self.queue.rows, same, temperature=self.settings.temperature)
        return {"contrast": loss}

    def remember(self, step: Step, rows: Rows) -> None:
        self.queue.add(step.processes.gather(rows.keys), step.processes.gather(rows.slices))


METHODS = (Method("moco", (MoCo,), "MoCo v2 with labels: pre-training only", "Chen et al.", 2020),)
PRETRAINING = (MoCo,)
