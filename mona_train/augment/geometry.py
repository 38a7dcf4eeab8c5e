"""`Geometry`: where each pixel of a view comes from.  Geometries compose; nothing is resampled until `apply`.

Points are (x, y), with -1 and 1 at the centres of the outermost pixels (align_corners=True), so one geometry works at
every resolution: the image, a feature map, a logit map.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_train.augment import matrices
from mona_train.augment.draw import Size
from mona_train.augment.sampling import SamplingGrid, View, turn_of

CONVERGED = 1e-5  # in units of half a frame: a thousandth of a pixel at 256
HALF_STEP = 0.5  # of the fixed-point iteration: it then converges wherever a warp stretches less than fourfold


@dataclass(frozen=True)
class Geometry:
    """Steps in the order in which they are applied to an image.

    A step is an affine map (B, 3, 3), float64 on the CPU, or a displacement (B, 2, h, w), float32 on the batch's
    device and given on a lattice of any size that spans the frame.  Both map points of the view to points of the
    source, so points go through the steps backwards: view(p) = image(first(... last(p))).
    """

    steps: tuple[Tensor, ...]

    @classmethod
    def identity(cls, count: int) -> Geometry:
        return cls((matrices.identity(count),))

    def __len__(self) -> int:
        return len(self.steps[0])

    def __getitem__(self, images: slice | Tensor) -> Geometry:
        """The geometry of some images of the batch."""
        return Geometry(tuple(step[images] for step in self.steps))

    def then(self, later: Geometry) -> Geometry:
        """First this, then `later`, in one resampling; neighbouring affine maps become one."""
        if len(self) != len(later):
            raise ValueError(f"expected geometries for the same batch, found {len(self)} and {len(later)} images")
        head, tail = self.steps, later.steps
        if _is_affine(head[-1]) and _is_affine(tail[0]):
            head, tail = head[:-1], (head[-1] @ tail[0], *tail[1:])
        return Geometry(head + tail)

    def inverse(self) -> Geometry:
        """Maps a view back: `g.then(g.inverse())` is the identity, except for what left the frame."""
        back = (torch.linalg.inv(s) if _is_affine(s) else _invert(s) for s in reversed(self.steps))
        return Geometry(tuple(back))

    def grid(self, size: Size, device: torch.device | str = "cpu", *, source: Size | None = None) -> SamplingGrid:
        """The grid of a view of that size, of maps of size `source` (None: the same).

        Worth keeping when several maps move in the same way.
        """
        source = size if source is None else source
        turns = {}
        if len(self.steps) == 1 and _is_affine(self.steps[0]) and source == size:
            found = {i: turn_of(m, size) for i, m in enumerate(self.steps[0].tolist())}
            turns = {i: turn for i, turn in found.items() if turn is not None}
        moved = [i for i in range(len(self)) if i not in turns]
        rest = self[torch.tensor(moved, dtype=torch.int64)] if turns else self
        return SamplingGrid.of(rest.points(size, device), moved, turns, source)

    def points(self, size: Size, device: torch.device | str = "cpu") -> Tensor:
        """Source points (B, 2, H, W) of every pixel."""
        frame = frame_points(size, device)
        points = frame.expand(len(self), -1, -1, -1)
        for n, step in enumerate(reversed(self.steps)):
            if _is_affine(step):
                matrix = step.to(device, torch.float32)
                points = torch.baddbmm(matrix[:, :2, 2:], matrix[:, :2, :2], points.flatten(2)).view(-1, 2, *size)
            else:
                field = step.to(device)
                points = points + (_resized(field, size) if n == 0 else displacement_at(field, points))
        return points

    def apply(
        self,
        images: Tensor,
        labels: Tensor | None = None,
        confidence: Tensor | None = None,
        *,
        size: Size | None = None,
        ignore: int = 0,
    ) -> View:
        """Move images (B, C, H, W), labels and confidence (B, H, W) with one grid; see `SamplingGrid.apply`.

        The view has the size of the images unless another is given.
        """
        if images.ndim != 4 or len(images) != len(self):
            raise ValueError(f"expected images ({len(self)}, C, H, W), found {tuple(images.shape)}")
        source = images.shape[-2], images.shape[-1]
        grid = self.grid(source if size is None else size, images.device, source=source)
        return grid.apply(images, labels, confidence, ignore=ignore)


def _is_affine(step: Tensor) -> bool:
    return bool(step.ndim == 3)


def frame_points(size: Size, device: torch.device | str) -> Tensor:
    """The points (2, H, W) of the pixels themselves."""
    y, x = (torch.linspace(-1, 1, n, device=device) if n > 1 else torch.zeros(1, device=device) for n in size)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"))


def _resized(field: Tensor, size: Size) -> Tensor:
    same = tuple(field.shape[-2:]) == tuple(size)
    return field if same else F.interpolate(field, size, mode="bilinear", align_corners=True)


def displacement_at(field: Tensor, points: Tensor) -> Tensor:
    """The displacement at any points (B, 2, H, W); beyond the frame that of its edge."""
    return F.grid_sample(field, points.permute(0, 2, 3, 1), padding_mode="border", align_corners=True)


def _invert(field: Tensor) -> Tensor:
    """The displacement back, on the same lattice: e(p) = -d(p + e(p)), solved by fixed-point iteration."""
    height, width = field.shape[-2:]
    frame = frame_points((height, width), field.device)
    back = -field
    for _ in range(100):
        missing = back + displacement_at(field, frame + back)
        back = back - HALF_STEP * missing
        if missing.abs().max() < CONVERGED:
            return back
    raise ValueError("this displacement cannot be inverted: it must stretch by less than a factor of four")
