"""Anatomical Contrastive Reconstruction: MONA's fine-tuning (method 4).

The supervised and pseudo-label losses are always on.  The three principles can be chosen: tailness (pixel contrast with
hard queries and class-aware keys), consistency (equivariance), diversity (nearest neighbours found by the teacher).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_kernels.ops import OPS
from mona_train.augment import ACR as STRENGTH
from mona_train.augment import equivariance
from mona_train.config.toml import within
from mona_train.losses.fixed_equivariance import fixed_equivariance
from mona_train.losses.neighbours import nearest_neighbours
from mona_train.losses.supervised import supervised
from mona_train.losses.tailness import Tailness
from mona_train.losses.unsupervised import IGNORE, unsupervised
from mona_train.methods import base
from mona_train.methods.acr_batch import Seen, Views, bcp, separate
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step, Turn, frozen_statistics
from mona_train.methods.glcon import GLCon
from mona_train.methods.views import Strengths, size_of
from mona_train.networks.heads import DIM, Norm, Predictor, ProjectionHead
from mona_train.networks.representation import RepresentationHead
from mona_train.networks.unet import UNet, UNetOutput

FIXED_RAMP = 0.2  # share of its steps in which consistency with a fixed target rises to its weight
PRINCIPLES = ("tailness", "consistency", "diversity")


@dataclass(frozen=True)
class Settings(base.Settings):
    """ACR, method 4."""

    principles: tuple[str, ...] = PRINCIPLES
    lr: float | None = None  # of fine-tuning, which starts from a trained network; None: the same as in pre-training
    mix: Literal["cutmix", "bcp"] = "cutmix"  # unlabelled slices with each other, or with labelled ones (copy-paste)
    pseudo: Literal["view", "plain"] = "view"  # bcp: labels from the teacher on the view itself, or on the plain slice
    whole: float = 0.0  # bcp: share of the images that are not mixed
    student: Strengths = "strong"  # which views of unlabelled slices student and teacher see: all four pairs
    teacher: Strengths = "weak"
    labelled: Literal["weak", "jittered"] = "weak"  # cutmix; jittered: warped and jittered like unlabelled slices
    start: float = 0.0  # share of the stage after which the principles join
    consistency: Literal["published", "fixed"] = "published"  # with the student's own answer, or labels and the teacher
    repel: bool = False  # neighbours: also away from slices that are none (InfoNCE)
    contrast_ramp: float = 0.0  # share of its steps in which the contrast rises to its weight
    supervised_scale: float = 1.0
    contrast_weight: float = 0.01
    equivariance_weight: float = 1.0
    unsupervised_weight: float = 1.0
    neighbours_weight: float = 1.0
    sure: float = 0.97  # confidence from which a pseudo-label counts as sure
    confident: float = 0.0  # bcp: confidence from which a pixel's pseudo-label counts
    weigh: Literal["image", "pixel"] = "image"  # by its share of sure pixels (4.3), or the sure pixels alone (FixMatch)
    likely: float = 0.7  # confidence from which a pixel's pseudo-label is used by contrast and equivariance
    mode: Literal["shared", "exact", "expected"] = "shared"  # of the contrast's keys
    queries: int = 256
    keys: int = 512
    ring: int = 2048
    hard: float = 0.97
    temperature: float = 0.5
    dim: int = 512  # of the contrast's rows
    bank: int = 36
    neighbours: int = 5
    norm: Norm = "bn"  # of the heads; must match GLCon, whose heads are trained further here

    def __post_init__(self) -> None:
        unknown = set(self.principles) - set(PRINCIPLES)
        if unknown:
            raise InputError(f"unknown principle {', '.join(unknown)}; choose from {', '.join(PRINCIPLES)}")
        within(self, "acr", 1, None, "queries", "keys", "ring", "dim", "bank", "neighbours")
        within(self, "acr", 0, 1, "sure", "likely", "hard", "confident", "start", "contrast_ramp", "whole")
        within(self, "acr", 1e-3, None, "temperature")
        weights = ("contrast_weight", "equivariance_weight", "unsupervised_weight", "neighbours_weight")
        within(self, "acr", 0, None, "supervised_scale", *weights)
        if self.lr is not None:
            within(self, "acr", 0, None, "lr")


class ACR(base.Stage):
    name = "acr"
    Settings = Settings
    averaged = ("unet", "projector", "representation")
    nesterov = True
    cost = 1.2  # with the teacher's pass over the unlabelled half

    def __init__(self, settings: Any, **shape: Any) -> None:
        super().__init__(settings, **shape)
        s = settings
        self.ops = OPS[self.kernels]
        if "tailness" in s.principles:
            self.tailness = Tailness(
                self.classes,
                s.dim,
                queries=s.queries,
                keys=s.keys,
                ring=s.ring,
                likely=s.likely,
                hard=s.hard,
                temperature=s.temperature,
                mode=s.mode,
                kernels=self.kernels,
            )
        self.bank = Bank(s.bank, (DIM,), slices=2)  # a mixed image shows two

    @classmethod
    def passes(cls, settings: Any) -> float:
        """The teacher's pass over the whole batch, and the student's over the moved one, from `start` on."""
        active = _weighted(settings)
        extra = (1 / 3 if active & {"tailness", "diversity"} else 0) + (1.1 if "consistency" in active else 0)
        return float(cls.cost + (1 - settings.start) * extra)

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        return {
            "unet": unet,
            "projector": ProjectionHead(unet.channels[0], norm=self.settings.norm),
            "predictor": Predictor(norm=self.settings.norm),
            "representation": RepresentationHead(unet.channels, self.settings.dim, predictor=True),
        }

    def turns(self) -> tuple[Turn, ...]:
        lr = self.settings.lr
        return (Turn((), self.losses, {} if lr is None else {"lr": lr}),)

    def weights(self, step: Step) -> dict[str, float]:
        s = self.settings
        fixed = FIXED_RAMP if s.consistency == "fixed" else 0.0
        return {
            "supervised": s.supervised_scale,
            "contrast": self._ramp(step, s.contrast_ramp) * s.contrast_weight,
            "equivariance": self._ramp(step, fixed) * s.equivariance_weight,
            "unsupervised": s.unsupervised_weight,
            "neighbours": s.neighbours_weight,
        }

    def losses(self, step: Step) -> Losses:
        principles = self._active(step)
        seen = self._seen(step, target="consistency" in principles and self.settings.consistency == "fixed")
        out: UNetOutput = step.student["unet"](seen.images)
        losses = self._fit(out.logits, seen)
        if not principles:
            return losses
        taught: UNetOutput | None = None
        if "tailness" in principles or "diversity" in principles:
            with torch.no_grad():
                taught = step.teacher["unet"](seen.images)
        probabilities = out.logits.detach().float().softmax(1)
        if "tailness" in principles:
            assert taught is not None
            losses["contrast"] = self.tailness(
                out.features,
                probabilities,
                taught.features,
                seen.labels,
                seen.confidence,
                step.student["representation"],
                step.teacher["representation"],
                seed=step.seed,
                step=step.number,
                processes=step.processes,
            )
        if "consistency" in principles:
            losses["equivariance"] = self._equivariance(step, seen, probabilities)
        if "diversity" in principles:
            assert taught is not None
            losses |= self._diversity(step, out.bottleneck, taught.bottleneck, seen)
        return losses

    def _seen(self, step: Step, *, target: bool = False) -> Seen:
        s, views = self.settings, Views(STRENGTH, self.settings.student, self.settings.teacher)
        if s.mix == "bcp":
            plain = s.pseudo == "plain"
            return bcp(step, views, kernels=self.kernels, whole=s.whole, plain=plain, target=target)
        return separate(step, views, jittered=s.labelled == "jittered", target=target)

    def _active(self, step: Step) -> set[str]:
        """The principles of this step: those of weight 0 cost nothing, and all of them nothing before `start`."""
        return _weighted(self.settings) if step.progress >= self.settings.start else set()

    def _ramp(self, step: Step, share: float) -> float:
        """Linear from 0 to 1 over this share of the steps in which the principles are active."""
        start = self.settings.start
        active = max(0.0, step.progress - start) / (1 - start) if start < 1 else 0.0
        return 1.0 if active >= share else active / share

    def _fit(self, logits: Tensor, seen: Seen) -> Losses:
        """To labels and pseudo-labels: by image where an image has one kind of them, by pixel where it has both."""
        s, n = self.settings, seen.labelled
        if s.mix == "bcp":
            taught = ~seen.known & (seen.confidence >= s.confident) & (seen.labels != IGNORE)
            return {
                "supervised": supervised(logits, seen.labels.clamp(min=0), seen.known),
                "unsupervised": supervised(logits, seen.labels.clamp(min=0), taught),
            }
        labels, confidence = seen.labels, seen.confidence
        return {
            "supervised": supervised(logits[:n], labels[:n]),
            "unsupervised": unsupervised(logits[n:], labels[n:], confidence[n:], sure=s.sure, by=s.weigh),
        }

    def _equivariance(self, step: Step, seen: Seen, probabilities: Tensor) -> Tensor:
        """T acts on the geometry that the student saw; unlabelled slices get new intensity jitter (4.4)."""
        plain, n = seen.plain, seen.labelled
        size, device = size_of(plain), plain.device
        fresh = torch.cat([plain[:n], step.augment.appearance(step.generator, plain[n:], STRENGTH)])
        limits = step.augment.limits
        grid = equivariance(step.generator, len(plain), size, limits=limits, device=device).grid(size, device)
        moved = grid.apply(fresh).images
        with frozen_statistics(step.student["unet"]):
            out: UNetOutput = step.student["unet"](moved)
        trusted = seen.confidence >= self.settings.likely
        if seen.target is not None:
            return fixed_equivariance(seen.target, trusted, grid, out.logits)
        mask = trusted & (seen.labels > 0)
        return self.ops.equivariance(probabilities, mask, grid.points, out.logits)

    def _diversity(self, step: Step, student: Tensor, teacher: Tensor, seen: Seen) -> dict[str, Any]:
        """Heads get the whole batch, for more rows in their batch norm; the loss leaves labelled slices out."""
        s, n = self.settings, seen.labelled
        u = F.normalize(step.student["predictor"](step.student["projector"](student)).float(), dim=1)[n:]
        with torch.no_grad():
            v = F.normalize(step.teacher["projector"](teacher).float(), dim=1)[n:]
        found = {}
        if self.bank.full:
            found["neighbours"] = nearest_neighbours(u, v, self.bank, seen.slices, k=s.neighbours, repel=s.repel)
        self.bank.add(step.processes.gather(v), step.processes.gather(seen.slices))
        return found


def _weighted(s: Settings) -> set[str]:
    """The principles whose weight is not 0."""
    weights = {"tailness": s.contrast_weight, "consistency": s.equivariance_weight, "diversity": s.neighbours_weight}
    return {name for name in s.principles if weights[name] > 0}


METHODS = (
    Method(
        "mona", (GLCon, ACR), "relational pre-training, then contrast, equivariance and neighbours", "You et al.", 2024
    ),
)
