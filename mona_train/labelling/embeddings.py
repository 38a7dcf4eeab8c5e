"""One pass of a run's network over a scan: how unsure it is, and the scan as a point among other scans.

Scans are read from their files with the preprocessing of `mona segment`, not from the run's cache: scans may have been
added since the run, and the cache has a window only for the slices that were trained on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.geometry.probabilities import softmax
from mona_infer.geometry.slicing import spread
from mona_infer.geometry.stack import SliceStack
from mona_infer.segmenting.first_look import look
from mona_infer.volume import Volume
from mona_train.engine.full_precision import full_precision
from mona_train.engine.torch_engine import BATCH, TorchEngine
from mona_train.labelling.uncertainty import Uncertainty, uncertainty
from mona_train.methods.contrastive import pooled
from mona_train.run.load import Trained


@dataclass(frozen=True, eq=False)
class Seen:
    uncertainty: Uncertainty
    embedding: NDArray[np.float64]  # the pooled bottleneck, averaged over slices; not yet of length 1


class Viewer:
    """Looks at one scan after another; at most 48 slices of each, evenly spaced, as the first look does."""

    def __init__(self, trained: Trained) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._task, self._network = trained.task, trained.network.to(self._device).eval()
        self._look = TorchEngine(trained.look.to(self._device)) if trained.look is not None else None

    def see(self, volume: Volume) -> Seen:
        stack = SliceStack(volume, self._task)
        if self._look is not None:
            stack = stack.aimed_at(look(stack, self._look)[0])
        slices, each = spread(range(len(stack))), max(1, BATCH // len(stack.windows))
        parts, embeddings = [], []
        for start in range(0, len(slices), each):
            given = np.concatenate([stack.read(k, k + 1) for k in slices[start : start + each]])
            with torch.no_grad(), full_precision(self._device):
                out = self._network(torch.from_numpy(given)[:, None].to(self._device))
            logits = stack.merged(out.logits.float().cpu().contiguous().numpy())
            if not np.isfinite(logits).all():
                raise InputError(f"{volume.source}: the network's output is not finite; the run may be broken")
            parts.append(uncertainty(softmax(logits)))
            embeddings.append(pooled(out.bottleneck).double().cpu().numpy())
        return Seen(Uncertainty.joined(parts), np.concatenate(embeddings).mean(axis=0))


def unit(embeddings: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean of a patient's scans, at length 1: a patient with two scans weighs no more than one with one."""
    mean = np.mean(embeddings, axis=0)
    length = float(np.linalg.norm(mean))
    return np.asarray(mean / length if length else mean)
