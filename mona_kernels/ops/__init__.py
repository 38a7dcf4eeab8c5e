"""Torch ops of training.  Each folder is one op: `reference.py` specifies it, `__init__.py` registers its kernels.

`NATIVE` runs the kernels of the tensors' device, `REFERENCE` plain PyTorch everywhere: one is what training uses, the
other what it is compared with.
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


def _of(face: Callable[[Any], Any]) -> Ops:
    return Ops(
        face(sampling).census,
        face(sampling).draw_keys,
        face(class_means).class_sums,
        face(pyramid_gather).pyramid_gather,
        face(contrast).contrast,
        face(equivariance).equivariance,
    )


NATIVE, REFERENCE = _of(lambda op: op), _of(lambda op: op.reference)
OPS: dict[Kernels, Ops] = {"native": NATIVE, "reference": REFERENCE}
