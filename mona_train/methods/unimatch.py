"""UniMatch: FixMatch with two strong views of a slice, and a third stream whose features are perturbed instead.

Yang et al., "Revisiting weak-to-strong consistency in semi-supervised semantic segmentation", 2023.
L = 0.5 (CE + Dice) + 0.25 L(strong_1) + 0.25 L(strong_2) + 0.5 L(perturbed), all given the pseudo-labels of the weak
view where its confidence is 0.95 or more.  Perturbed: the weak view, with half of the channels of each of the encoder's
five levels dropped before they enter the decoder.  L is Dice, as in the authors' code for ACDC; "ce" is their formula.
Differs from that code: it halves the whole sum, here every method has the supervised scale of SSL4MIS (decision 9);
CutMix takes its partner from the same batch, and half of its area; pseudo-labels as in FixMatch; one pass for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.config.toml import within
from mona_train.methods import fixmatch
from mona_train.methods.base import Method, Step
from mona_train.methods.consistency import Batch
from mona_train.methods.fixmatch import Answer, FixMatch, Pseudo


@dataclass(frozen=True)
class Settings(fixmatch.Settings):
    """UniMatch."""

    mix: float = 0.5
    pseudo_loss: Literal["ce", "dice"] = "dice"
    strong_weight: float = 0.5  # of both strong views together
    feature_weight: float = 0.5
    drop: float = 0.5  # share of channels

    def __post_init__(self) -> None:
        super().__post_init__()
        within(self, "unimatch", 0, None, "strong_weight", "feature_weight")
        within(self, "unimatch", 0, 1, "drop")


class UniMatch(FixMatch):
    name = "unimatch"
    Settings = Settings
    cost = 2.2  # three streams of unlabelled slices instead of one
    views = 2

    def streams(self, step: Step, batch: Batch, images: list[Tensor], pseudo: Pseudo) -> list[Tensor]:
        """And of the perturbed stream, the last."""
        weak = batch.unlabelled(batch.images)
        unet: Any = step.student["unet"]
        levels = [self.perturb(level, len(weak)) for level in unet.encode(torch.cat([*images, weak]))]
        logits: Tensor = unet.decode(levels).logits
        return list(logits.split([len(part) for part in (*images, weak)]))

    def perturb(self, level: Tensor, last: int) -> Tensor:
        """Drop whole channels of the last so many images."""
        return torch.cat([level[:-last], F.dropout2d(level[-last:], self.settings.drop)])

    def agree(self, step: Step, batch: Batch, out: Answer) -> Tensor:
        s = self.settings
        assert out.pseudo is not None and out.perturbed is not None
        perturbed = self.judge(out.perturbed, out.pseudo.labels, out.pseudo.confidence)
        return s.strong_weight * super().agree(step, batch, out) + s.feature_weight * perturbed


METHODS = (
    Method("unimatch", (UniMatch,), "FixMatch with two strong views and perturbed features", "Yang et al.", 2023),
)
