"""Helpers for the Triton kernels: configurations to tune over, and the dtypes they take."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction

FLOATS = torch.float32, torch.bfloat16, torch.float16


def tuned(kernel: Any, configs: list[triton.Config], key: list[str]) -> Any:
    """Use the fastest configuration, measured once for each value of `key`; in the interpreter, the first.

    The configurations were chosen from the table of tools/compile_kernels.py, which compiles every one of them.
    """
    return triton.autotune(configs if isinstance(kernel, JITFunction) else configs[:1], key=key)(kernel)


def config(warps: int, stages: int = 2, **blocks: int) -> triton.Config:
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


def require_floats(op: str, **tensors: Tensor) -> None:
    """Refuse float64, which only the references support: tensor cores accumulate in float32."""
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise TypeError(
                f"{op} on a GPU needs float32, bfloat16 or float16, but {name} is {tensor.dtype}; "
                f"convert it, or call mona_kernels.ops.{op}.reference"
            )


def block(size: int, most: int, least: int = 16) -> int:
    """The power of two that fits `size`, within limits: larger sizes are looped over, and the tail is masked."""
    return max(least, min(most, int(triton.next_power_of_2(size))))
