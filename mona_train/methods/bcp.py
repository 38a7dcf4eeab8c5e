"""Bidirectional copy-paste: labelled and unlabelled slices are pasted into each other, and each pixel is judged by the
label or pseudo-label it came with.  Before that, the network learns from labelled slices pasted into each other.

Bai et al., "Bidirectional copy-paste for semi-supervised medical image segmentation", 2023.
L = (CE + Dice)(labelled pixels) + 0.5 (CE + Dice)(the others, largest piece of each class of the EMA teacher's answer).
This is the public code's sum over both directions of 0.5 (...).  Differs from it: a box for each image, not one for the
batch; the teacher answers without dropout; half of the slices are pasted in pre-training, not all.  The public code
ignores its own setting of 10,000 pre-training steps and takes as many as in the second stage: here the run says.
"""

from __future__ import annotations

from dataclasses import dataclass

from mona_infer.errors import InputError
from mona_train.augment import Strength
from mona_train.config.toml import within
from mona_train.losses.supervised import supervised
from mona_train.losses.unsupervised import IGNORE
from mona_train.methods import acr_batch, base
from mona_train.methods import supervised as pretraining
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.supervised import Supervised
from mona_train.networks.unet import UNetOutput

STRENGTH = Strength(colour_probability=0, gamma_probability=0, blur_probability=0)  # weak views alone, as published


@dataclass(frozen=True)
class PastedSettings(pretraining.Settings):
    """Pre-training of bidirectional copy-paste."""

    copy_paste: bool = True


class Pasted(Supervised):
    """The same as `supervised` with copy_paste on."""

    name = "copy-paste"
    Settings = PastedSettings


@dataclass(frozen=True)
class Settings(base.Settings):
    """Bidirectional copy-paste."""

    supervised_scale: float = 1.0  # of cross-entropy + Dice of labelled pixels
    unsupervised_weight: float = 0.5  # the same of the others

    def __post_init__(self) -> None:
        within(self, "bcp", 0, None, "supervised_scale", "unsupervised_weight")


class BCP(base.Stage):
    name = "bcp"
    Settings = Settings
    averaged = ("unet",)
    cost = 1.2  # the teacher's pass over unlabelled slices

    def weights(self, step: Step) -> dict[str, float]:
        return {"supervised": self.settings.supervised_scale, "unsupervised": self.settings.unsupervised_weight}

    def losses(self, step: Step) -> Losses:
        if step.unlabelled is None:
            raise InputError("bcp needs unlabelled slices; lower --ratio, or use --method unet-f")
        seen = acr_batch.bcp(step, acr_batch.Views(STRENGTH), kernels=self.kernels)
        out: UNetOutput = step.student["unet"](seen.images)
        labels, taught = seen.labels.clamp(min=0), ~seen.known & (seen.labels != IGNORE)
        return {
            "supervised": supervised(out.logits, labels, seen.known),
            "unsupervised": supervised(out.logits, labels, taught),
        }


METHODS = (Method("bcp", (Pasted, BCP), "labelled and unlabelled slices pasted into each other", "Bai et al.", 2023),)
