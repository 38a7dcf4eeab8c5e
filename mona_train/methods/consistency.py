"""What the rivals of the SSL4MIS family share (method 6): weak views, half of cross-entropy + Dice, and a loss whose
weight rises over the whole run.  Each rival adds how a network is made to agree on unlabelled slices.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Step, sigmoid_rampup
from mona_train.methods.views import weak_batch

LEVELS = 200  # the published ramp rises this many times: every 150 of 30,000 steps


@dataclass(frozen=True)
class Settings(base.Settings):
    """A consistency method, method 6."""

    supervised_scale: float = 0.5  # of cross-entropy + Dice, as SSL4MIS (decision 9)
    consistency_weight: float = 0.1  # at the end of the ramp

    def __post_init__(self) -> None:
        within(self, self.table(), 0, None, "supervised_scale", "consistency_weight")

    @classmethod
    def table(cls) -> str:
        """What --set calls them: a rival's file has its name."""
        return cls.__module__.rpartition(".")[2].replace("_", "-")


def ramp(index: int, steps: int) -> float:
    """exp(-5 (1 - e/200)^2) with e = floor(t / 150) of 30,000 steps, at any length (decision 8)."""
    return sigmoid_rampup((LEVELS * index // steps) / LEVELS)


class Batch(NamedTuple):
    """What the student sees: weak views, the labelled ones first."""

    images: Tensor  # B 1 H W, with the run's appearance
    plain: Tensor  # the same without it
    labels: Tensor  # n H W, of the first n

    @property
    def labelled(self) -> int:
        return len(self.labels)

    def unlabelled(self, maps: Tensor) -> Tensor:
        """The part of maps of all images that belongs to unlabelled slices."""
        return maps[self.labelled :]


class Consistency(base.Stage):
    """A student that fits labels and, with weight w(t), agrees with something on unlabelled slices."""

    Settings = Settings

    def weights(self, step: Step) -> dict[str, float]:
        return {"consistency": self.settings.consistency_weight * ramp(step.index, step.steps)}

    def losses(self, step: Step) -> Losses:
        plain, labels = weak_batch(step)
        batch = Batch(step.augment.appearance(step.generator, plain, None), plain, labels)
        out = self.answer(step, batch)
        losses = {"supervised": self.settings.supervised_scale * self.fit(out, batch)}
        if len(batch.images) > batch.labelled and self.active(step):
            losses["consistency"] = self.agree(step, batch, out)
        return losses

    def active(self, step: Step) -> bool:
        """Whether the loss on unlabelled slices is computed at this step: not while its weight is 0."""
        return self.weights(step)["consistency"] > 0

    def ema(self, step: Step, decay: float) -> float:
        """A plain mean of all students so far, until that would be slower than the run's decay."""
        return min(1 - 1 / (step.index + 1), decay)

    def answer(self, step: Step, batch: Batch) -> Any:
        """The student on the batch."""
        return step.student["unet"](batch.images)

    def fit(self, out: Any, batch: Batch) -> Tensor:
        """Cross-entropy + Dice of the labelled images."""
        return supervised(out.logits[: batch.labelled], batch.labels)

    @abstractmethod
    def agree(self, step: Step, batch: Batch, out: Any) -> Tensor:
        """The loss on unlabelled slices, without its weight."""
