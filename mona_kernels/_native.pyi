# The C++ module (csrc/module.cpp).  Use mona_kernels.native, which checks shapes and dtypes.
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def nearest(slices: NDArray[Any], out: NDArray[Any], threads: int) -> None: ...
def linear(slices: NDArray[np.float32], out: NDArray[np.float32], threads: int) -> None: ...
def argmax(logits: NDArray[np.float32], out: NDArray[Any], order: int, threads: int) -> None: ...
def resample(
    slices: NDArray[np.float32],
    out: NDArray[np.float32],
    row_first: NDArray[np.int32],
    row_weight: NDArray[np.float32],
    col_first: NDArray[np.int32],
    col_weight: NDArray[np.float32],
    threads: int,
) -> None: ...
def argmax_taps(
    logits: NDArray[np.float32],
    out: NDArray[Any],
    row_first: NDArray[np.int32],
    row_weight: NDArray[np.float32],
    col_first: NDArray[np.int32],
    col_weight: NDArray[np.float32],
    threads: int,
) -> None: ...
def keep_largest(map: NDArray[Any], only: Sequence[int] | None, threads: int) -> None: ...
def fill_holes(map: NDArray[Any], id: int, threads: int) -> None: ...
def slice_counts(map: NDArray[Any], ids: Sequence[int], counts: NDArray[np.int64], threads: int) -> None: ...
def overlap(a: NDArray[Any], b: NDArray[Any], threads: int) -> list[list[int]]: ...
def surface(
    a: NDArray[Any], b: NDArray[Any], id: int, box: Sequence[int], spacing: Sequence[float], threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def sheared(
    a: NDArray[Any], b: NDArray[Any], id: int, box: Sequence[int], steps: Sequence[Sequence[float]], threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
