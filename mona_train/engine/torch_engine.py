"""A PyTorch network as an `Engine`, so that what is measured in training runs through the code of `mona segment`."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mona_train.engine.full_precision import full_precision

BATCH = 16  # slices at a time


class TorchEngine:
    """Computes in 32 bit, as an exported model does.  The network is left in evaluation mode."""

    def __init__(self, network: nn.Module, device: torch.device | None = None) -> None:
        self._network = network.eval()
        self._device = device or next(network.parameters()).device
        self.batch = BATCH
        self.description = f"PyTorch {torch.__version__}, {self._device.type}"

    def run(self, slices: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad(), full_precision(self._device):
            logits = self._network(torch.from_numpy(slices)[:, None].to(self._device)).logits
            answer: NDArray[np.float32] = logits.float().cpu().contiguous().numpy()
            return answer
