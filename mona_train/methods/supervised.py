"""Supervised training: UNet-F and UNet-L of the tables (method 6), or the same with MONA's strong augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mona_train.augment import ACR, View
from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.views import mixed_view, pasted, size_of, weak_view
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
        view = self._view(step)
        if self.settings.copy_paste:
            view = pasted(step.generator, view)
        strength = None if self.settings.augmentation == "weak" else ACR
        images = step.augment.appearance(step.generator, view.images, strength)
        out: UNetOutput = step.student["unet"](images)
        return {"supervised": self.settings.scale * supervised(out.logits, view.labels)}

    def _view(self, step: Step) -> View:
        """Without appearance."""
        g, images, labels = step.generator, step.labelled.images, step.labelled.labels
        if self.settings.augmentation == "weak":
            return weak_view(step, images, labels)
        window = step.window or size_of(images)
        chain = step.augment.geometry(g, len(images), size_of(images), window, images.device)
        return mixed_view(g, images, labels, augment=step.augment, after=chain, window=window)


METHODS = (
    Method("unet-l", (Supervised,), "supervised, on the labelled slices only", "Ronneberger et al.", 2015),
    Method(
        "unet-f", (Supervised,), "supervised, on all labels (upper bound)", "Ronneberger et al.", 2015, all_labels=True
    ),
)
PRETRAINING = (Supervised,)
