"""L_contrast of method 4.2 with decisions 1, 2 and 12: hard pixels of every class against all other classes.

Each class has a ring of teacher representations.  Every ring gets the same number of pixels per step, however rare the
class (as long as it has that many).  No tensor of size D x H x W is made: pixels are chosen on label maps first and
projected afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mona_kernels.ops import OPS, Kernels
from mona_kernels.ops.contrast import MODES, Mode
from mona_kernels.ops.sampling import Census, thresholds
from mona_train.engine.distributed import Distributed, SingleProcess
from mona_train.losses.class_graph import class_graph
from mona_train.networks.representation import RepresentationHead

ALONE = SingleProcess()


class Tailness(nn.Module):  # type: ignore[misc]
    """The rings are buffers: the same in every process, and saved with the run."""

    def __init__(
        self,
        classes: int,
        dim: int = 512,
        *,
        queries: int = 256,  # per class and process, with replacement
        keys: int = 512,  # negatives per query
        ring: int = 2048,  # slots per class
        fill: int = 256,  # at most this many new rows per class, process and step
        likely: float = 0.7,  # confidence from which a pixel's label counts
        hard: float = 0.97,  # student probability below which a pixel may be a query
        temperature: float = 0.5,
        graph_temperature: float = 0.5,
        mode: Mode = "shared",
        kernels: Kernels = "native",
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, found {mode!r}")
        self.classes, self.mode, self.ops = classes, mode, OPS[kernels]
        self.queries, self.keys, self.fill, self.likely, self.hard = queries, keys, fill, likely, hard
        self.temperature, self.graph_temperature = temperature, graph_temperature
        self.register_buffer("rings", torch.zeros(classes, ring, dim))  # rows of length 1 in the slots in use
        self.register_buffer("filled", torch.zeros(classes, dtype=torch.int64))  # slots in use: the first so many
        self.register_buffer("next_slot", torch.zeros(classes, dtype=torch.int64))

    def forward(
        self,
        student: Sequence[Tensor],  # levels B c_l h_l w_l, coarsest first
        probabilities: Tensor,  # B C H W, the student's
        teacher: Sequence[Tensor],
        labels: Tensor,  # B H W
        confidence: Tensor,  # B H W: 1 where labelled, else the pseudo-label's
        head_student: RepresentationHead,
        head_teacher: RepresentationHead,
        *,
        seed: int,
        step: int,
        processes: Distributed = ALONE,
    ) -> Tensor:
        if probabilities.shape != (len(labels), self.classes, *labels.shape[1:]) or confidence.shape != labels.shape:
            found = ", ".join(str(tuple(t.shape)) for t in (probabilities, labels, confidence))
            raise ValueError(
                f"expected probabilities (B, {self.classes}, H, W), labels and confidence (B, H, W), found {found}"
            )
        with torch.autocast(labels.device.type, enabled=False):
            # the rank is above the low byte of the stream, so that no two draws of a step share a counter
            draw = {"seed": seed, "step": step, "stream": processes.rank << 8}
            with torch.no_grad():
                chosen = self.ops.census(
                    probabilities.detach(),
                    labels.long(),
                    confidence,
                    likely=self.likely,
                    hard=self.hard,
                    fill=self.fill,
                    queries=self.queries,
                    **draw,
                )
                means, present = self._learn(teacher, chosen, head_teacher, processes)
                law = class_graph(means, present, self.filled > 0, self.graph_temperature)
                active = (chosen.hard > 0) & law.any(1)
            rows = self._rows(student, chosen.queries, chosen.known)
            queries = head_student(rows).unflatten(0, chosen.queries.shape)
            return self._contrast(queries, active, means, law, draw)

    def _learn(
        self, teacher: Sequence[Tensor], chosen: Census, head: RepresentationHead, processes: Distributed
    ) -> tuple[Tensor, Tensor]:
        """Add new keys to the rings; return class means (C, D) over all processes, and which classes have one (C)."""
        matrix = head.collapsed(predict=False)  # the teacher has no predictor; an EMA copy's is not used
        self._enqueue(self._rows(teacher, chosen.keys, chosen.known) @ matrix, processes)
        sums = processes.total(self.ops.class_sums(teacher, chosen.known, self.classes))
        counts = processes.total(chosen.counts)
        return sums / counts.clamp_min(1)[:, None] @ matrix, counts > 0

    def _rows(self, features: Sequence[Tensor], pixels: Tensor, known: Tensor) -> Tensor:
        return self.ops.pyramid_gather(features, pixels.flatten(), (known.shape[1], known.shape[2]))

    def _contrast(self, queries: Tensor, active: Tensor, means: Tensor, law: Tensor, draw: dict[str, int]) -> Tensor:
        ring, filled = self.rings.shape[1], self.filled
        if self.mode == "expected":
            negatives = {"law": law, "filled": filled, "count": self.keys}
        else:
            each = self.queries if self.mode == "exact" else 1
            limits = thresholds(law, filled)
            negatives = {"drawn": self.ops.draw_keys(limits, filled, self.keys, ring, queries=each, **draw)}
        return self.ops.contrast(
            queries, active, means, self.rings, temperature=self.temperature, mode=self.mode, **negatives
        )

    def _enqueue(self, rows: Tensor, processes: Distributed) -> None:
        """Put the rows (C * fill, D) of all processes into the rings, oldest out first, in order of rank.

        A pixel that a process does not have is a row of zeros.  A key has length 1; rows that do not, and NaN, are
        left out.
        """
        classes, ring, dim = self.rings.shape
        mine = F.normalize(rows, dim=1).view(classes, self.fill, dim).to(self.rings.dtype)
        every = processes.gather(mine).view(-1, classes, self.fill, dim).transpose(0, 1).flatten(1, 2)
        seen = (every.square().sum(2) > 0.5).cumsum(1)  # C, processes * fill: rows kept so far
        arrived = seen[:, -1:].contiguous()
        # Arrival n goes into its slot.  Shapes do not depend on the number of arrivals, so a GPU need not wait: numbers
        # beyond the last arrival, or older than a ring can hold, write a row a second time to the same slot.
        numbers = torch.arange(seen.shape[1], device=seen.device).clamp_min(arrived - ring).minimum(arrived - 1)
        numbers = numbers.clamp_min(0)
        row = torch.searchsorted(seen, numbers + 1).clamp_max(seen.shape[1] - 1)
        owner = torch.arange(classes, device=seen.device)[:, None]
        slot = (self.next_slot[:, None] + numbers) % ring
        self.rings[owner, slot] = torch.where((arrived > 0)[..., None], every[owner, row], self.rings[owner, slot])
        self.filled.copy_((self.filled + arrived[:, 0]).clamp_max(ring))
        self.next_slot.copy_((self.next_slot + arrived[:, 0]) % ring)
