"""Where the Triton kernels run: on the CPU in the interpreter (TRITON_INTERPRET=1), else on the GPU."""

import os
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


def here(*tensors: Tensor) -> list[Tensor]:
    return [t.to(DEVICE) for t in tensors]


def layouts(maps: Tensor) -> dict[str, Tensor]:
    """The same numbers (B, C, H, W) in the layouts a kernel may be given."""
    b, c, h, w = maps.shape
    wide = torch.full((b, c, h + 3, 2 * w), torch.nan, dtype=maps.dtype, device=maps.device)
    wide[:, :, 2 : h + 2, 1::2] = maps
    return {
        "contiguous": maps.contiguous(),
        "channels last": maps.contiguous(memory_format=torch.channels_last),
        "every other column of a crop": wide[:, :, 2 : h + 2, 1::2],
        "turned": maps.transpose(2, 3).contiguous().transpose(2, 3),
    }


def _dot(self: interpreter.InterpreterBuilder, a: Any, b: Any, *rest: Any) -> Any:
    """The interpreter holds bfloat16 as 16-bit integers and would multiply those."""
    return DOT(self, _widened(a), _widened(b), *rest)


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


DOT = interpreter.InterpreterBuilder.create_dot
interpreter.InterpreterBuilder.create_dot = _dot
