"""Torch ops for training.  Each folder is one op: `reference.py` specifies it, `__init__.py` registers its kernels.

`NATIVE` runs the kernels for the tensors' device and is used in training.  `REFERENCE` is plain PyTorch everywhere, for
comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from mona_kernels import Kernels as Kernels
from mona_kernels.ops import class_means, contrast, equivariance, pyramid_gather, sampling


class Ops(NamedTuple):
    census: Callable[..., sampling.Census]
    draw_keys: Callable[..., Tensor]
    class_sums: Callable[..., Tensor]
    pyramid_gather: Callable[..., Tensor]
    contrast: Callable[..., Tensor]
    equivariance: Callable[..., Tensor]


def _ops(version: Callable[[Any], Any]) -> Ops:
    return Ops(
        version(sampling).census,
        version(sampling).draw_keys,
        version(class_means).class_sums,
        version(pyramid_gather).pyramid_gather,
        version(contrast).contrast,
        version(equivariance).equivariance,
    )


NATIVE, REFERENCE = _ops(lambda op: op), _ops(lambda op: op.reference)
OPS: dict[Kernels, Ops] = {"native": NATIVE, "reference": REFERENCE}
