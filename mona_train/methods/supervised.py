"""Supervised training: UNet-F and UNet-L of the tables (method 6), or the same with MONA's strong augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mona_train.augment import ACR, View
from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.views import mixed_view, pasted, weak_geometry, weak_view
from mona_train.networks.unet import UNetOutput


@dataclass(frozen=True)
class Settings(base.Settings):
    """Supervised training, method 6."""

    augmentation: Literal["weak", "strong"] = "weak"  # strong: a control that shows what augmentation alone gains
    copy_paste: bool = False  # half of the slices show a box of another one
    scale: float = 0.5  # of cross-entropy + Dice, as SSL4MIS (decision 9)

    def __post_init__(self) -> None:
        within(self, "supervised", 0, None, "scale")


class Supervised(base.Stage):
    name = "supervised"
    Settings = Settings
    unlabelled = False

    def losses(self, step: Step) -> Losses:
        weak = self.settings.augmentation == "weak"
        view = self._view(step, weak)
        if self.settings.copy_paste:
            view = pasted(step.generator, view)
        strength = None if weak else ACR
        images = step.augment.appearance(step.generator, view.images, strength)
        out: UNetOutput = step.student["unet"](images)
        return {"supervised": self.settings.scale * supervised(out.logits, view.labels)}

    def _view(self, step: Step, weak: bool) -> View:
        """Without appearance."""
        images, labels = step.labelled.images, step.labelled.labels
        if weak:
            return weak_view(step, images, labels)
        after, window = weak_geometry(step, images)
        return mixed_view(step.generator, images, labels, augment=step.augment, after=after, window=window)


METHODS = (
    Method("unet-l", (Supervised,), "supervised, on the labelled slices only", "Ronneberger et al.", 2015),
    Method(
        "unet-f", (Supervised,), "supervised, on all labels (upper bound)", "Ronneberger et al.", 2015, all_labels=True
    ),
)
PRETRAINING = (Supervised,)
