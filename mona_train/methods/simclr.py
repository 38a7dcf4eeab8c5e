"""SimCLR as pre-training (method 6): of all views of a batch, those of one slice should be nearest to each other.

Chen et al., "A simple framework for contrastive learning of visual representations", 2020.
L = L_sup + NT-Xent of 2B rows, both views through the student.  The negatives are those of the batch alone, few of them
in a batch of six; several processes do not share theirs.
Differs from the public code: t = 0.5; a slice that is twice in a batch is not its own negative; one crop of the two;
batch statistics of each view alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from mona_train.config.toml import within
from mona_train.losses.nt_xent import nt_xent
from mona_train.methods import contrastive
from mona_train.methods.base import Losses, Method, Step, frozen_statistics
from mona_train.methods.contrastive import Contrastive, Views, encoded, head, pooled, same_slice
from mona_train.networks.projector import Projector
from mona_train.networks.unet import UNet, UNetOutput

HEAD = "simclr_projector"


@dataclass(frozen=True)
class Settings(contrastive.Settings):
    """SimCLR, method 6."""

    temperature: float = 0.5
    dim: int = 128  # of the embedding

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "simclr", 1, None, "dim")
        within(self, "simclr", 1e-3, None, "temperature")


class SimCLR(Contrastive):
    name = "simclr"
    Settings = Settings
    cost = 1.4  # the student's encoder a second time

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        return {"unet": unet, HEAD: Projector(unet.channels[0], unet.channels[0], self.settings.dim)}

    def contrast(self, step: Step, views: Views, out: UNetOutput) -> Losses:
        unet = step.student["unet"]
        with frozen_statistics(unet):  # those of the first view, for the encoder as for the decoder
            second = encoded(unet, views.second)
        rows = head(step.student, HEAD, torch.cat([pooled(out.bottleneck), second]))
        itself = torch.eye(len(second), dtype=torch.bool, device=second.device)
        positives = (same_slice(views.slices, views.slices) | itself).repeat(2, 2)
        return {"contrast": nt_xent(rows, positives, temperature=self.settings.temperature)}


METHODS = (Method("simclr", (SimCLR,), "SimCLR with labels: pre-training only", "Chen et al.", 2020),)
PRETRAINING = (SimCLR,)
