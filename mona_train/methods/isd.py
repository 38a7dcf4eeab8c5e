"""ISD as pre-training (method 6): the student learns the teacher's similarities of a slice to recent slices.

Tejankar et al., "ISD: self-supervised learning by iterative similarity distillation", 2021.
L = L_sup + mean KL(softmax(v W / 0.01) || softmax(u W / 0.1)), u = h'(h(student)) on a strong view, v = h(teacher) on a
weak one, W the teacher's rows of recent slices.
This is GLCon without its windows, on purpose: views, heads, bank and temperatures are GLCon's, so that the difference
of both is what the windows gain.  Hence both views have one geometry and the queue 36 rows; the public code draws two
geometries and keeps 128,000.  The heads have GLCon's names too, and MONA's fine-tuning trains them further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mona_train.augment import GLCON
from mona_train.config.toml import within
from mona_train.losses.relational import relational_kl
from mona_train.methods import base
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.contrastive import Contrastive, Views, encoded, slices_of
from mona_train.methods.views import weak_batch
from mona_train.networks.heads import DIM, Norm, Predictor, ProjectionHead
from mona_train.networks.unet import UNet, UNetOutput


@dataclass(frozen=True)
class Settings(base.Settings):
    """ISD, method 6."""

    contrast_weight: float = 1.0
    supervised_scale: float = 1.0  # of cross-entropy + Dice (decision 9)
    copy_paste: bool = False  # half of the labelled slices show a box of another one
    bank: int = 36  # slices
    student_temperature: float = 0.1
    teacher_temperature: float = 0.01
    norm: Norm = "bn"  # of the heads; must match MONA's fine-tuning

    def __post_init__(self) -> None:
        within(self, "isd", 0, None, "contrast_weight", "supervised_scale")
        within(self, "isd", 1, None, "bank")
        within(self, "isd", 1e-3, None, "student_temperature", "teacher_temperature")


class ISD(Contrastive):
    name = "isd"
    Settings = Settings
    averaged = ("unet", "projector")
    cost = 1.2  # the teacher's encoder

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        self.slices = Bank(settings.bank, (DIM,))

    def networks(self) -> dict[str, nn.Module]:
        unet, norm = UNet(self.classes, width=self.width), self.settings.norm
        projector = ProjectionHead(unet.channels[0], norm=norm)
        return {"unet": unet, "projector": projector, "predictor": Predictor(norm=norm)}

    def views(self, step: Step) -> Views:
        weak, labels = weak_batch(step, paste=self.settings.copy_paste)
        return Views(step.augment.appearance(step.generator, weak, GLCON), weak, labels, slices_of(step))

    def contrast(self, step: Step, views: Views, out: UNetOutput) -> Losses:
        s, student = self.settings, step.student
        with torch.no_grad():
            taught = encoded(step.teacher["unet"], views.second)
            v = step.teacher["projector"](taught[:, :, None, None])  # this head averages over pixels itself
        found = {}
        if self.slices.full:
            u = student["predictor"](student["projector"](out.bottleneck))
            temperatures = {"t_student": s.student_temperature, "t_teacher": s.teacher_temperature}
            found["contrast"] = relational_kl(u, v, self.slices.rows, **temperatures)
        self.slices.add(step.processes.gather(v))
        return found


METHODS = (Method("isd", (ISD,), "ISD with labels: pre-training only", "Tejankar et al.", 2021),)
PRETRAINING = (ISD,)
