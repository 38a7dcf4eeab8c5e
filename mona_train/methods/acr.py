"""Anatomical Contrastive Reconstruction: MONA's fine-tuning (method 4).

The supervised and pseudo-label losses are always on.  The three principles can be chosen: tailness (pixel contrast with
hard queries and class-aware keys), consistency (equivariance), diversity (nearest neighbours found by the teacher).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_kernels.ops import OPS
from mona_train.augment import ACR as STRENGTH
from mona_train.augment import diffeo, equivariance, jitter, weak
from mona_train.config.toml import within
from mona_train.losses.neighbours import nearest_neighbours
from mona_train.losses.supervised import supervised
from mona_train.losses.tailness import Tailness
from mona_train.losses.unsupervised import unsupervised
from mona_train.methods import base
from mona_train.methods.bank import Bank
from mona_train.methods.base import Losses, Method, Step, Turn, frozen_statistics
from mona_train.methods.glcon import GLCon
from mona_train.methods.views import mixed_view, size_of, weak_view
from mona_train.networks.heads import DIM, Norm, Predictor, ProjectionHead
from mona_train.networks.representation import RepresentationHead
from mona_train.networks.unet import UNet, UNetOutput

PRINCIPLES = ("tailness", "consistency", "diversity")


@dataclass(frozen=True)
class Settings(base.Settings):
    """ACR, method 4."""

    principles: tuple[str, ...] = PRINCIPLES
    lr: float | None = None  # of fine-tuning, which starts from a trained network; None: the same as in pre-training
    labelled: Literal["weak", "jittered"] = "weak"  # jittered: warped and jittered like unlabelled slices, not mixed
    supervised_scale: float = 1.0
    contrast_weight: float = 0.01
    equivariance_weight: float = 1.0
    unsupervised_weight: float = 1.0
    neighbours_weight: float = 1.0
    sure: float = 0.97  # confidence from which a pseudo-label counts as sure
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
        within(self, "acr", 0, 1, "sure", "likely", "hard")
        within(self, "acr", 1e-3, None, "temperature")
        weights = ("contrast_weight", "equivariance_weight", "unsupervised_weight", "neighbours_weight")
        within(self, "acr", 0, None, "supervised_scale", *weights)
        if self.lr is not None:
            within(self, "acr", 0, None, "lr")


class Unlabelled(NamedTuple):
    """The unlabelled slices as the student sees them, and the teacher's pseudo-labels."""

    images: Tensor  # B 1 H W: warped, mixed and jittered
    plain: Tensor  # the same without jitter
    labels: Tensor  # B H W pseudo-labels, warped and mixed in the same way
    confidence: Tensor  # B H W


class ACR(base.Stage):
    name = "acr"
    Settings = Settings
    averaged = ("unet", "projector", "representation")
    nesterov = True
    cost = 2.6

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

    def weights(self) -> dict[str, float]:
        s = self.settings
        return {
            "supervised": s.supervised_scale,
            "contrast": s.contrast_weight,
            "equivariance": s.equivariance_weight,
            "unsupervised": s.unsupervised_weight,
            "neighbours": s.neighbours_weight,
        }

    def losses(self, step: Step) -> Losses:
        principles, s = self.settings.principles, self.settings
        images, labels = self._labelled(step)
        unlabelled = self._unlabelled(step)
        n = len(images)
        images = torch.cat([images, unlabelled.images])
        labels = torch.cat([labels, unlabelled.labels])
        confidence = torch.cat([torch.ones_like(labels[:n], dtype=torch.float32), unlabelled.confidence])
        out: UNetOutput = step.student["unet"](images)
        losses = {}
        losses["supervised"] = supervised(out.logits[:n], labels[:n])
        losses["unsupervised"] = unsupervised(out.logits[n:], labels[n:], confidence[n:], sure=s.sure, by=s.weigh)
        taught: UNetOutput | None = None
        if "tailness" in principles or "diversity" in principles:
            with torch.no_grad():
                taught = step.teacher["unet"](images)
        probabilities = out.logits.detach().float().softmax(1)
        if "tailness" in principles:
            assert taught is not None
            losses["contrast"] = self.tailness(
                out.features,
                probabilities,
                taught.features,
                labels,
                confidence,
                step.student["representation"],
                step.teacher["representation"],
                seed=step.seed,
                step=step.number,
                processes=step.processes,
            )
        if "consistency" in principles:
            plain = torch.cat([images[:n], unlabelled.plain])
            mask = (confidence >= s.likely) & (labels > 0)
            losses["equivariance"] = self._equivariance(step, plain, n, probabilities, mask)
        if "diversity" in principles:
            assert taught is not None
            losses |= self._diversity(step, out.bottleneck, taught.bottleneck, n)
        return losses

    def _labelled(self, step: Step) -> tuple[Tensor, Tensor]:
        g, images, labels = step.generator, step.labelled.images, step.labelled.labels
        if self.settings.labelled == "weak":
            view = weak_view(g, images, labels)
        else:
            geometry = weak(g, len(images), size_of(images)).then(diffeo(g, len(images), device=images.device))
            view = geometry.apply(images, labels)
            view = view._replace(images=jitter(g, view.images, STRENGTH))
        assert view.labels is not None
        return view.images, view.labels

    def _unlabelled(self, step: Step) -> Unlabelled:
        """Pseudo-labels are made on the weak view, then warped and mixed with it; jitter only changes the image."""
        if step.unlabelled is None:
            raise InputError("MONA's fine-tuning needs unlabelled slices; lower --ratio, or use --method unet-f")
        images = weak_view(step.generator, step.unlabelled.images).images
        with torch.no_grad():
            confidence, labels = step.teacher["unet"](images).logits.float().softmax(1).max(1)
        view = mixed_view(step.generator, images, labels, confidence)
        assert view.labels is not None and view.confidence is not None
        strong = jitter(step.generator, view.images, STRENGTH)
        return Unlabelled(strong, view.images, view.labels, view.confidence)

    def _equivariance(self, step: Step, plain: Tensor, labelled: int, probabilities: Tensor, mask: Tensor) -> Tensor:
        """T acts on the geometry that the student saw; unlabelled slices get new intensity jitter (4.4)."""
        size, device = size_of(plain), plain.device
        fresh = torch.cat([plain[:labelled], jitter(step.generator, plain[labelled:], STRENGTH)])
        grid = equivariance(step.generator, len(plain), size, device=device).grid(size, device)
        moved = grid.apply(fresh).images
        with frozen_statistics(step.student["unet"]):
            out: UNetOutput = step.student["unet"](moved)
        return self.ops.equivariance(probabilities, mask, grid.points, out.logits)

    def _diversity(self, step: Step, student: Tensor, teacher: Tensor, labelled: int) -> dict[str, Any]:
        """Heads get the whole batch, for more rows in their batch norm; the loss is on unlabelled slices only."""
        u = F.normalize(step.student["predictor"](step.student["projector"](student)).float(), dim=1)[labelled:]
        with torch.no_grad():
            v = F.normalize(step.teacher["projector"](teacher).float(), dim=1)[labelled:]
        assert step.unlabelled is not None
        shown = torch.stack(
            [step.unlabelled.rows, step.unlabelled.rows.roll(-1)], 1
        )  # CutMix's partner is the next one
        found = {}
        if self.bank.full:
            found["neighbours"] = nearest_neighbours(u, v, self.bank, shown, k=self.settings.neighbours)
        self.bank.add(step.processes.gather(v), step.processes.gather(shown))
        return found


METHODS = (
    Method(
        "mona", (GLCon, ACR), "relational pre-training, then contrast, equivariance and neighbours", "You et al.", 2024
    ),
)
