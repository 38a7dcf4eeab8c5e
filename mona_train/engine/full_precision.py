"""Numbers that are kept or compared are computed in 32 bit, whatever a run is trained in.

An exported model computes in float32.  A network measured in bf16 would be reported by masks that no export gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast, and no TF32: by default a GPU rounds what its convolutions read to 10 bits."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32
    cudnn.allow_tf32 = False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        cudnn.allow_tf32 = before
