"""kNN-MoCo as pre-training (method 6): MoCo, and a slice should also be near to its nearest neighbours in the queue.

Van Gansbeke et al., "Revisiting contrastive methods for unsupervised learning of visual representations", 2021.
L = L_moco + 0.4 mean over the k neighbours n of -log softmax over the queue (q.n / t), where neighbours are found with
the pooled bottleneck, before the head.
Differs from the public code: k = 5 (MONA's paper) instead of 50; two views instead of six; both queues are read before
this step's rows are added.  There, rows were added between the two readings, so a slice's neighbour was its own key and
the logit that of another slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mona_train.config.toml import within
from mona_train.losses.info_nce import neighbour_nce
from mona_train.methods import moco
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.contrastive import channels, same_slice
from mona_train.methods.moco import MoCo, Rows


@dataclass(frozen=True)
class Settings(moco.Settings):
    """kNN-MoCo, method 6."""

    neighbours: int = 5
    neighbours_weight: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "knn-moco", 1, None, "neighbours")
        within(self, "knn-moco", 0, None, "neighbours_weight")


class KNNMoCo(MoCo):
    name = "knn-moco"
    Settings = Settings

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        self.places = Bank(settings.queue, (channels(self),))  # row by row the slices of `queue`

    def weights(self, step: Step) -> dict[str, float]:
        return super().weights(step) | {"neighbours": self.settings.neighbours_weight}

    def compare(self, rows: Rows) -> Losses:
        s, same = self.settings, same_slice(rows.slices, self.queue.tags)
        queues = self.queue.rows, self.places.rows
        loss = neighbour_nce(rows.queries, rows.seen, *queues, same, k=s.neighbours, temperature=s.temperature)
        return super().compare(rows) | {"neighbours": loss}

    def remember(self, step: Step, rows: Rows) -> None:
        super().remember(step, rows)
        self.places.add(step.processes.gather(rows.taught), step.processes.gather(rows.slices))


METHODS = (Method("knn-moco", (KNNMoCo,), "kNN-MoCo with labels: pre-training only", "Van Gansbeke et al.", 2021),)
PRETRAINING = (KNNMoCo,)
