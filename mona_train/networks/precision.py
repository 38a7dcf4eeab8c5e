"""The precision of a run, for a stage that uses only a part of a U-Net."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def as_precise_as(answer: Tensor) -> AbstractContextManager[object]:
    """Compute in the precision in which a network gave this answer.

    The trainer puts `forward` alone into half precision: `UNet.encode` and `UNet.decode` would run in 32 bit, at twice
    the time.
    """
    if answer.dtype == torch.float32:
        return nullcontext()
    half: AbstractContextManager[object] = torch.autocast(answer.device.type, dtype=answer.dtype)
    return half
