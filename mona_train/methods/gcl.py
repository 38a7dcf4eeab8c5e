"""GCL (method 6): before the labels are used, the encoder learns to tell depths apart, and the decoder places.

Chaitanya et al., "Contrastive learning of global and local features for medical image segmentation with limited
annotations", 2020 (its variants G^D and L^R).

1. gcl-global, the encoder.  Scans are cut into four depths; slices of one depth are positives of each other, in all
   scans and views, and slices of other depths are negatives.
2. gcl-local, the decoder's first blocks.  A region of the map at a quarter of the size, seen in two intensities, should
   be more like itself than like its five nearest regions.
3. gcl-finetune: supervised training of everything.

Both losses are -log(exp(s+ / t) / (exp(s+ / t) + sum of exp(s- / t))), s the cosine.  The encoder is frozen in stage 2
by requires_grad, so that the optimiser does not have it, and its running statistics are not updated.

Unlike the published code: this repository's U-Net, where two blocks, not three, reach a quarter of the size; a head on
the mean of the bottleneck (flattened it would have 67 M parameters); the five nearest regions, not a list written by
hand; and the run's own augmentation, loss and optimiser in stage 3, so that methods differ in their idea alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from mona_train.augment import Geometry, Strength
from mona_train.config.schema import Batch
from mona_train.config.toml import within
from mona_train.data.stream import UnlabelledBatch
from mona_train.losses.fixed_regions import CELLS, PLACES, region_pairs, regions
from mona_train.losses.nt_xent import nt_xent
from mona_train.methods import base
from mona_train.methods.base import Losses, Method, Step, Turn, adam, frozen_statistics
from mona_train.methods.supervised import Supervised
from mona_train.methods.views import crop, size_of, weak_geometry, weak_view
from mona_train.networks.unet import UNet, UNetOutput

PARTS, SCANS = 4, 3  # depths of a scan, and the least number of scans in a step
DIM = 128
CROP = 100 / 192  # side of the crops, as a fraction of the frame
STRENGTH = Strength(brightness=(0.7, 1.3), contrast=(0.7, 1.3))


@dataclass(frozen=True)
class Settings(base.Settings):
    """A contrastive stage of GCL, method 6."""

    temperature: float = 0.1

    def __post_init__(self) -> None:
        within(self, "gcl", 1e-3, None, "temperature")


class _Contrast(base.Stage):
    """All training slices as images; one labelled slice per step is dealt and not used."""

    Settings = Settings
    everything = True

    def batch(self, asked: Batch) -> tuple[int, int]:
        return 1, asked.labelled + asked.unlabelled

    def turns(self) -> tuple[Turn, ...]:
        return (Turn((), self.losses, adam(1e-3)),)


class GCLGlobal(_Contrast):
    name = "gcl-global"
    parts = PARTS
    cost = 0.75  # two views, through the encoder alone: 36 % of the U-Net

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        head = nn.Sequential(nn.Linear(unet.channels[0], 512), nn.ReLU(), nn.Linear(512, DIM))
        return {"unet": unet, "gcl_global": head}

    def batch(self, asked: Batch) -> tuple[int, int]:
        return 1, PARTS * max(SCANS, (asked.labelled + asked.unlabelled) // PARTS)

    def losses(self, step: Step) -> Losses:
        images = _slices(step).images
        views = torch.cat([self._view(step, images) for _ in range(2)])
        bottleneck = step.student["unet"].encode(views)[-1]
        rows = step.student["gcl_global"](bottleneck.mean((2, 3)))
        depth = torch.arange(len(views), device=rows.device) % PARTS  # one of each, scan after scan
        same = depth[:, None] == depth
        return {"global": nt_xent(rows, same, temperature=self.settings.temperature, negatives=~same)}

    def _view(self, step: Step, images: Tensor) -> Tensor:
        geometry, window = weak_geometry(step, images)
        view = geometry.then(crops(step.generator, len(images))).apply(images, size=window)
        return step.augment.appearance(step.generator, view.images, STRENGTH)


class GCLLocal(_Contrast):
    name = "gcl-local"
    cost = 1.1  # two views: forward through everything, backward through half of the decoder

    def networks(self) -> dict[str, nn.Module]:
        unet = UNet(self.classes, width=self.width)
        unet.encoder.requires_grad_(False)  # the next stage makes its own U-Net, which is not frozen
        return {"unet": unet, "gcl_local": RegionHead(unet.channels[2])}

    def losses(self, step: Step) -> Losses:
        images = weak_view(step, _slices(step).images).images
        views = torch.cat([step.augment.appearance(step.generator, images, STRENGTH) for _ in range(2)])
        unet = step.student["unet"]
        with frozen_statistics(unet.encoder):
            out: UNetOutput = unet(views)
        rows = step.student["gcl_local"](out.features[2])  # V R D, of V = 2 B views
        shown = torch.arange(len(views), device=rows.device) % len(images)
        positives, negatives = region_pairs(shown)
        loss = nt_xent(rows.flatten(0, 1), positives, temperature=self.settings.temperature, negatives=negatives)
        return {"local": loss}


class RegionHead(nn.Module):  # type: ignore[misc]
    """g_2: maps (V, c, h, w) to one embedding for each region (V, R, 128)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pixels = nn.Sequential(
            nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels, 1)
        )
        self.region = nn.Linear(channels * CELLS**2, DIM)

    def forward(self, maps: Tensor) -> Tensor:
        found = regions(size_of(maps)).of(self.pixels(maps))
        cells = F.adaptive_avg_pool2d(found.flatten(0, 1), CELLS)
        return self.region(cells.flatten(1)).view(len(maps), len(PLACES), DIM)


def crops(generator: Generator, count: int) -> Geometry:
    """A square of half the frame's side, anywhere in it, resized to the frame."""
    return crop(generator, torch.full((count,), CROP, dtype=torch.float64))


def _slices(step: Step) -> UnlabelledBatch:
    assert step.unlabelled is not None  # with `everything` there are always some
    return step.unlabelled


class GCLFinetune(Supervised):
    name = "gcl-finetune"


METHODS = (
    Method(
        "gcl",
        (GCLGlobal, GCLLocal, GCLFinetune),
        "contrast of depths, then of places, then fine-tuning",
        "Chaitanya et al.",
        2020,
        shares=(0.2, 0.2, 0.6),
    ),
)
