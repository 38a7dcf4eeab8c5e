"""L_contrast of METHOD 4.2 with Decisions 1, 2 and 12: hard pixels of every class against all other classes.

Each class owns a ring of teacher representations, and rings get the same number of pixels a step, however rare the
class (as long as it has that many).
Nothing of size D x H x W is made: pixels are chosen on label maps first and projected afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_kernels.ops.class_means import class_sums
from mona_kernels.ops.contrast import MODES, Mode, contrast
from mona_kernels.ops.pyramid_gather import pyramid_gather
from mona_kernels.ops.sampling import draw_keys, sample_pixels
from mona_train.networks.representation import RepresentationHead
from mona_train.world import World

# Low byte of the Philox stream; the rank is above it, so that no two draws of a step share a counter.
FILL, QUERY, KEY = range(3)
ALONE = World()


class Tailness(nn.Module):  # type: ignore[misc]
    """The rings are buffers, the same in every process, saved and restored with the run."""

    def __init__(
        self,
        classes: int,
        dim: int = 512,
        *,
        queries: int = 256,  # of each class and process, with replacement
        keys: int = 512,  # negatives of a query
        ring: int = 2048,  # slots of each class
        fill: int = 256,  # new rows of each class and process in a step, at most
        hard: float = 0.97,  # student probability below which a pixel may ask
        temperature: float = 0.5,
        graph_temperature: float = 0.5,
        mode: Mode = "shared",
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise ValueError(f"expected mode {', '.join(MODES)}, found {mode!r}")
        self.classes, self.mode = classes, mode
        self.queries, self.keys, self.fill, self.hard = queries, keys, fill, hard
        self.temperature, self.graph_temperature = temperature, graph_temperature
        self.register_buffer("rings", torch.zeros(classes, ring, dim))  # rows of length 1 in the slots in use
        self.register_buffer("filled", torch.zeros(classes, dtype=torch.int64))  # slots in use: the first so many
        self.register_buffer("next_slot", torch.zeros(classes, dtype=torch.int64))

    def forward(
        self,
        student: Sequence[Tensor],  # levels B c_l h_l w_l, coarsest first
        student_logits: Tensor,  # B C H W
        teacher: Sequence[Tensor],
        labels: Tensor,  # B H W
        valid: Tensor,  # B H W, bool: labelled, or a pseudo-label that is sure enough
        head_student: RepresentationHead,
        head_teacher: RepresentationHead,
        *,
        seed: int,
        step: int,
        world: World = ALONE,
    ) -> Tensor:
        if student_logits.shape != (len(labels), self.classes, *labels.shape[1:]) or valid.shape != labels.shape:
            found = ", ".join(str(tuple(t.shape)) for t in (student_logits, labels, valid))
            raise ValueError(f"expected logits (B, {self.classes}, H, W), labels and valid (B, H, W), found {found}")
        with torch.autocast(labels.device.type, enabled=False):
            draw = {"seed": seed, "step": step, "stream": world.rank << 8}
            with torch.no_grad():
                known = torch.where(valid, labels.long(), -1)
                means, present = self._learn(teacher, known, head_teacher, draw, world)
                law = self._law(means, present)
                sure = student_logits.float().softmax(1).gather(1, known.clamp(0, self.classes - 1)[:, None])[:, 0]
                eligible = torch.where(sure < self.hard, known, -1)
                pixels, hard = sample_pixels(eligible, self.classes, self.queries, **_for(QUERY, draw))
                active = (hard > 0) & law.any(1)
            rows = pyramid_gather(student, pixels.flatten(), (known.shape[1], known.shape[2]))
            queries = head_student(rows).unflatten(0, pixels.shape)
            return self._contrast(queries, active, means, law, draw)

    def _learn(
        self, teacher: Sequence[Tensor], known: Tensor, head: RepresentationHead, draw: dict[str, int], world: World
    ) -> tuple[Tensor, Tensor]:
        """New keys into the rings, and class means (C, D) over all processes with the classes that have one (C)."""
        matrix = head.collapsed(predict=False)  # the teacher has no predictor; an EMA copy's is not used
        pixels, own = sample_pixels(known, self.classes, self.fill, **_for(FILL, draw))
        # No more rows than there are pixels: one stray pseudo-label must not take an eighth of a ring.
        pixels[torch.arange(self.fill, device=own.device) >= own[:, None]] = -1
        self._enqueue(pyramid_gather(teacher, pixels.flatten(), (known.shape[1], known.shape[2])) @ matrix, world)
        sums, counts = (world.total(t) for t in class_sums(teacher, known, self.classes))
        return sums / counts.clamp_min(1)[:, None] @ matrix, counts > 0

    def _contrast(self, queries: Tensor, active: Tensor, means: Tensor, law: Tensor, draw: dict[str, int]) -> Tensor:
        t, rings, filled = self.temperature, self.rings, self.filled
        if self.mode == "expected":
            here = {"law": law, "filled": filled, "count": self.keys}
            return contrast(queries, active, means, rings, temperature=t, mode="expected", **here)
        each = self.queries if self.mode == "exact" else 1
        negative, slot = draw_keys(law, filled, self.keys, **_for(KEY, draw), queries=each)  # C each N
        if self.mode == "exact":
            drawn = negative * rings.shape[1] + slot
            return contrast(queries, active, means, rings, temperature=t, mode="exact", drawn=drawn)
        keys = rings[negative[:, 0].clamp_min(0), slot[:, 0].clamp_min(0)]  # C N D; a class that drew -1 is not active
        return contrast(queries, active, means, keys, temperature=t, mode="shared")

    def _law(self, means: Tensor, present: Tensor) -> Tensor:
        """pi_c(v) of METHOD 4.2.5 (C, C): over the other classes of the class set; rows without any are 0."""
        mean = F.normalize(means, dim=1)
        usable = present & (self.filled > 0)
        pairs = present[:, None] & usable & ~torch.eye(self.classes, dtype=torch.bool, device=means.device)
        graph = (mean @ mean.T / self.graph_temperature).masked_fill(~pairs, -torch.inf)
        return graph.softmax(1).masked_fill(~pairs, 0)  # a row of -inf alone comes out of softmax as NaN

    def _enqueue(self, rows: Tensor, world: World) -> None:
        """Put the rows (C * fill, D) of all processes into the rings, oldest out first, in order of rank.

        Pixels a process did not have come as rows of zeros: a key has length 1, and what has not (NaN neither) is
        left out.
        """
        classes, ring, dim = self.rings.shape
        mine = F.normalize(rows, dim=1).view(classes, self.fill, dim).to(self.rings.dtype)
        every = world.gather(mine).view(-1, classes, self.fill, dim).transpose(0, 1).flatten(1, 2)
        keep = every.square().sum(2) > 0.5  # C, processes * fill
        order, arrived = keep.cumsum(1) - 1, keep.sum(1)
        keep &= order >= (arrived - ring)[:, None]  # more than a ring holds: a slot is written once, by the last
        owner, row = keep.nonzero(as_tuple=True)
        self.rings[owner, (self.next_slot[owner] + order[owner, row]) % ring] = every[owner, row]
        self.filled.copy_((self.filled + arrived).clamp_max(ring))
        self.next_slot.copy_((self.next_slot + arrived) % ring)


def _for(purpose: int, draw: dict[str, int]) -> dict[str, int]:
    return {**draw, "stream": draw["stream"] | purpose}
