"""Results are computed in 32 bit, whatever precision a run is trained in.

An exported model computes in float32.  Scores measured in bf16 would belong to masks that no export produces.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32: by default a GPU rounds the inputs of convolutions to 10 bits."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32
    cudnn.allow_tf32 = False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        cudnn.allow_tf32 = before
