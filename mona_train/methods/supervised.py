"""Supervised training: UNet-F and UNet-L of the tables (method 6), or the same with MONA's strong augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mona_train.augment import View, weak
from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.views import size_of, strong_view, weak_view
from mona_train.networks.unet import UNetOutput


@dataclass(frozen=True)
class Settings(base.Settings):
    """Supervised training, method 6."""

    augmentation: Literal["weak", "strong"] = "weak"  # strong: a control that shows what augmentation alone gains
    scale: float = 0.5  # of cross-entropy + Dice, as SSL4MIS (decision 9)

    def __post_init__(self) -> None:
        within(self, "supervised", 0, None, "scale")


class Supervised(base.Stage):
    name = "supervised"
    Settings = Settings
    unlabelled = False

    def losses(self, step: Step) -> Losses:
        view = self._view(step)
        out: UNetOutput = step.student["unet"](view.images)
        return {"supervised": self.settings.scale * supervised(out.logits, view.labels)}

    def _view(self, step: Step) -> View:
        g, images, labels = step.generator, step.labelled.images, step.labelled.labels
        if self.settings.augmentation == "weak":
            return weak_view(g, images, labels)
        return strong_view(g, images, labels, after=weak(g, len(images), size_of(images)))


METHODS = (
    Method("unet-l", (Supervised,), "supervised, on the labelled slices only", "Ronneberger et al.", 2015),
    Method(
        "unet-f", (Supervised,), "supervised, on all labels (upper bound)", "Ronneberger et al.", 2015, all_labels=True
    ),
)
