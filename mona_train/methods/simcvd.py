"""SimCVD (method 6): simple contrastive voxel-wise distillation, here of slices.

The network also predicts signed distances to each class's boundary; dropout alone makes two views of a slice, and a
student learns from its EMA what sets the slice's boundaries apart from those of others, and how positions relate.
You et al., "SimCVD: simple contrastive voxel-wise representation distillation for semi-supervised medical image
segmentation", TMI 2022.  r is the map of signed distances (tanh), h a projector, teacher t, student s:

L = CE + Dice + alpha MSE(r_s, r)                                labelled slices
  + lambda InfoNCE(h_s(r_s), h_t(r_t); tau)                      a slice against the others of the batch
  + beta mean over positions i of KL(softmax_j cos(v_ti, v_tj) || softmax_j cos(v_si, v_sj))      v: the bottleneck
  + w(t) MSE(softmax(0, -k r_s), softmax(0, -k r_t))             unlabelled slices

There is no public code and the paper is about volumes; the 2-D recipe is method 6's.  The teacher sees noise and has
dropout (decision 4 switches it off elsewhere), since two dropout masks are this method's views.  k is mild: 1,500, as
others have it, would leave no gradient but within a pixel of the boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_train.config.toml import within
from mona_train.losses.matched_pairs import matched
from mona_train.losses.signed_distance import signed_distance
from mona_train.losses.supervised import supervised
from mona_train.methods import base, consistency
from mona_train.methods.base import Losses, Method, Step, with_dropout
from mona_train.methods.views import noise, weak_batch
from mona_train.networks.heads import CELLS, MLP
from mona_train.networks.unet import UNet, UNetOutput

DIM = 128  # of a slice's embedding


@dataclass(frozen=True)
class Settings(consistency.Settings):
    """SimCVD, method 6."""

    supervised_scale: float = 1.0  # of cross-entropy + Dice
    distance_weight: float = 0.1  # alpha
    contrast_weight: float = 0.5  # lambda
    distillation_weight: float = 0.1  # beta
    temperature: float = 0.5  # tau
    sharpness: float = 10.0  # k
    noise: float = 0.1  # sigma, on intensities in 0..1
    noise_limit: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "simcvd", 0, None, "distance_weight", "contrast_weight", "distillation_weight")
        within(self, "simcvd", 0, None, "sharpness", "noise", "noise_limit")
        within(self, "simcvd", 1e-3, None, "temperature")


class DistanceProjector(MLP):
    """h: maps (B, C - 1, H, W), averaged over 8 x 8 cells, to B x 128."""

    def __init__(self, maps: int) -> None:
        super().__init__(maps * CELLS**2, DIM, norm="none")

    def forward(self, distances: Tensor) -> Tensor:
        return super().forward(F.adaptive_avg_pool2d(distances, CELLS).flatten(1))


class SimCVD(base.Stage):
    name = "simcvd"
    Settings = Settings
    averaged = ("unet", "distance", "distance_projector")
    cost = 1.3  # the teacher's forward pass, distances of labels

    def networks(self) -> dict[str, nn.Module]:
        unet, maps = UNet(self.classes, width=self.width), self.classes - 1
        head = nn.Sequential(nn.Conv2d(unet.channels[-1], maps, 3, padding=1), nn.Tanh())
        return {"unet": unet, "distance": head, "distance_projector": DistanceProjector(maps)}

    def weights(self, step: Step) -> dict[str, float]:
        s = self.settings
        return {
            "distance": s.distance_weight,
            "contrast": s.contrast_weight,
            "distillation": s.distillation_weight,
            "consistency": s.consistency_weight * consistency.ramp(step.index, step.steps),
        }

    def losses(self, step: Step) -> Losses:
        plain, labels = weak_batch(step)
        n, s = len(labels), self.settings
        out, distances, rows = self._views(step.student, step.augment.appearance(step.generator, plain, None))
        with torch.no_grad(), with_dropout(step.teacher):
            noisy = plain + noise(step.generator, plain, s.noise, s.noise_limit)
            taught, targets, keys = self._views(step.teacher, noisy)
        losses = {
            "supervised": s.supervised_scale * supervised(out.logits[:n], labels),
            "distance": F.mse_loss(distances[:n], signed_distance(labels, self.classes)),
            "contrast": matched(rows, keys, s.temperature),
            "distillation": relations(out.bottleneck, taught.bottleneck),
        }
        if len(plain) > n:
            losses["consistency"] = F.mse_loss(self.soft(distances[n:]), self.soft(targets[n:]))
        return losses

    def _views(self, networks: nn.ModuleDict, images: Tensor) -> tuple[UNetOutput, Tensor, Tensor]:
        """The U-Net's output, signed distances and the embeddings of those."""
        out = networks["unet"](images)
        distances = networks["distance"](out.features[-1]).float()
        return out, distances, networks["distance_projector"](distances)

    def soft(self, distances: Tensor) -> Tensor:
        """Class probabilities (B, C, H, W): inside a class its distance is negative; background is 0."""
        return F.pad(-self.settings.sharpness * distances, (0, 0, 0, 0, 1, 0)).softmax(1)


def relations(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) of each position's similarities to all positions of its image; maps (B, D, h, w)."""
    theirs, mine = (_log_similarities(maps) for maps in (teacher.detach(), student))
    return (theirs.exp() * (theirs - mine)).sum(-1).mean()


def _log_similarities(maps: Tensor) -> Tensor:
    """Log-softmax of the cosines of all pairs of positions (B, h w, h w)."""
    v = F.normalize(maps.float().flatten(2).mT, dim=-1)
    return F.log_softmax(v @ v.mT, -1)


METHODS = (Method("simcvd", (SimCVD,), "contrast and distillation of boundary distances", "You et al.", 2022),)
