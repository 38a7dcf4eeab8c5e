"""GLCon: MONA's pre-training (method 3).  Relations of slices, and of windows, to those of recent slices.

The student sees a strong view and the teacher a weak one, both with the same geometry, so window i shows both the same
place.  Every image is compared with a bank of teacher embeddings; those of this step are added after the losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mona_train.augment import GLCON
from mona_train.config.toml import within
from mona_train.losses.local_windows import draw_windows
from mona_train.losses.relational import relational_kl
from mona_train.losses.supervised import supervised
from mona_train.methods import base
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step
from mona_train.methods.views import Strengths, seen_with, size_of, weak_batch
from mona_train.networks.heads import DIM, LocalHead, LocalPredictor, Norm, Predictor, ProjectionHead
from mona_train.networks.unet import UNet, UNetOutput

PREDICTOR = {"projector": "predictor", "local": "local_predictor"}  # of each head, the student's alone


@dataclass(frozen=True)
class Settings(base.Settings):
    """GLCon, method 3."""

    bank: int = 36  # slices
    student_temperature: float = 0.1
    teacher_temperature: float = 0.01
    windows: int = 6  # per side
    jitter: float = 1 / 16  # how far a window may move, as a fraction of the frame
    global_weight: float = 1.0
    local_weight: float = 1.0
    supervised_scale: float = 1.0  # of cross-entropy + Dice (decision 9)
    norm: Norm = "bn"  # of the heads
    student: Strengths = "strong"  # which views student and teacher see: the paper compares all four pairs
    teacher: Strengths = "weak"
    copy_paste: bool = False  # half of the labelled slices show a box of another one

    def __post_init__(self) -> None:
        within(self, "glcon", 1, None, "bank", "windows")
        within(self, "glcon", 1e-3, None, "student_temperature", "teacher_temperature")
        within(self, "glcon", 0, 1, "jitter")
        within(self, "glcon", 0, None, "global_weight", "local_weight", "supervised_scale")


class GLCon(base.Stage):
    name = "glcon"
    Settings = Settings
    averaged = ("unet", "projector", "local")
    cost = 1.4  # the teacher's pass is a third of a training pass; heads and windows are the rest

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        self.slices = Bank(settings.bank, (DIM,))
        self.crops = Bank(settings.bank, (settings.windows**2, DIM))

    def networks(self) -> dict[str, nn.Module]:
        unet, norm = UNet(self.classes, width=self.width), self.settings.norm
        return {
            "unet": unet,
            "projector": ProjectionHead(unet.channels[0], norm=norm),
            "predictor": Predictor(norm=norm),
            "local": LocalHead(self.classes),
            "local_predictor": LocalPredictor(norm=norm),
        }

    def weights(self, step: Step) -> dict[str, float]:
        return {"global": self.settings.global_weight, "local": self.settings.local_weight}

    def losses(self, step: Step) -> Losses:
        """`global` and `local` are missing until the banks are full; with weight 0 they are not computed at all."""
        s = self.settings
        weak, labels = weak_batch(step, paste=s.copy_paste)
        out: UNetOutput = step.student["unet"](seen_with(step, weak, s.student, GLCON))
        losses = {"supervised": s.supervised_scale * supervised(out.logits[: len(labels)], labels)}
        if s.global_weight == 0 and s.local_weight == 0:
            return losses
        with torch.no_grad():
            taught: UNetOutput = step.teacher["unet"](seen_with(step, weak, s.teacher, GLCON))
        if s.global_weight > 0:
            losses |= self._relate("global", step, self.slices, "projector", out.bottleneck, taught.bottleneck)
        if s.local_weight > 0:
            windows = draw_windows(step.generator, size_of(weak), per_side=s.windows, jitter=s.jitter)
            crops = windows.of(out.logits), windows.of(taught.logits)
            losses |= self._relate("local", step, self.crops, "local", *crops)
        return losses

    def _relate(self, name: str, step: Step, bank: Bank, head: str, seen: Tensor, taught: Tensor) -> Losses:
        """KL between the student's and the teacher's relations to the bank; then the teacher's rows are added to it."""
        with torch.no_grad():  # also for the teacher's head, which was trained in the published code (difference 14)
            v = step.teacher[head](taught)
        found = {}
        if bank.full:
            u = step.student[PREDICTOR[head]](step.student[head](seen))
            t_student, t_teacher = self.settings.student_temperature, self.settings.teacher_temperature
            found[name] = relational_kl(u, v, bank.rows, t_student=t_student, t_teacher=t_teacher)
        bank.add(step.processes.gather(v))
        return found


METHODS = (Method("glcon", (GLCon,), "MONA's pre-training only", "You et al.", 2024),)
PRETRAINING = (GLCon,)
