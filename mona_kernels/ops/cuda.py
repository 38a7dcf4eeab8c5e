"""Registering a function as an op's CUDA kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def on_cuda(op: Any) -> Callable[[Callable[..., Any]], None]:
    """Register a function that launches Triton kernels; its first argument is a tensor or a list of tensors.

    Triton launches on the current device, which may not be the tensors' device.
    """

    def register(kernel: Callable[..., Any]) -> None:
        @op.register_kernel("cuda")  # type: ignore[untyped-decorator]
        def _(first: Any, *rest: Any) -> Any:
            with torch.cuda.device_of(first[0] if isinstance(first, list) else first):
                return kernel(first, *rest)

    return register
