"""Taps: which input pixels each output pixel is made of, and how much of each, along one axis.

Pixels are areas: output pixel k of `out` covers input k * in / out to (k + 1) * in / out, so the edges of the picture
stay where they are.  Where an axis shrinks, a pixel is the mean over the area it covers; where it grows, it is linear
between the centres of the two nearest pixels, and beyond the outermost centres it is the outermost pixel.
Indices and shares are computed in integers, so no rounding decides which pixels take part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Taps:
    """Output pixel k is the sum over t of weights[t, k] * input[first[k] + t]."""

    first: NDArray[np.int32]  # out
    weights: NDArray[np.float32]  # width out

    def __len__(self) -> int:
        return len(self.first)

    @property
    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        return self.first, self.weights

    @property
    def begin(self) -> int:
        """The first input pixel that is used."""
        return int(self.first.min()) if len(self) else 0

    @property
    def end(self) -> int:
        """One more than the last."""
        return int(self.first.max()) + len(self.weights) if len(self) else 0

    def within(self, start: int, stop: int) -> Taps:
        """The same taps for an input of which only pixels start..stop are at hand, its edge repeated beyond them."""
        return _taps(self.first + np.arange(len(self.weights))[:, None] - start, self.weights, stop - start)


def taps(size: int, out: int, start: int = 0, stop: int | None = None) -> Taps:
    """How `size` pixels become `out`; only for output pixels start..stop, if given."""
    stop = out if stop is None else stop
    if size < 1 or not 0 <= start <= stop <= out:
        raise ValueError(f"expected 1 or more pixels and 0 <= start <= stop <= {out}, found {size}, {start}, {stop}")
    k = np.arange(start, stop, dtype=np.int64)
    if out <= size:  # in units of 1/out pixel: k covers k * size to (k + 1) * size, and pixel i covers i * out to ...
        low, high = k * size, (k + 1) * size
        width = int((-(-high // out) - low // out).max(initial=1))
        index = low // out + np.arange(width)[:, None]
        share = np.minimum(high, (index + 1) * out) - np.maximum(low, index * out)
        return _taps(index, np.maximum(share, 0) / size, size)
    # in units of 1/(2 * out): centres of output pixels, measured from the centre of input pixel 0
    at = np.clip((2 * k + 1) * size - out, 0, 2 * out * (size - 1))
    low = at // (2 * out)
    upper = (at - 2 * out * low) / (2 * out)
    return _taps(np.stack([low, low + 1]), np.stack([1 - upper, upper]), size)


def _taps(index: NDArray[np.int64], weights: NDArray[np.floating], size: int) -> Taps:
    """Taps with any indices (width, out), moved into 0..size: each pixel's weights are gathered where they end up."""
    index, width = np.clip(index, 0, size - 1), min(len(index), size)
    first = np.minimum(index.min(axis=0), size - width)
    gathered = np.zeros((width, index.shape[1]), np.float64)
    for places, shares in zip(index - first, weights, strict=True):
        np.add.at(gathered, (places, np.arange(len(places))), shares)
    return Taps(first.astype(np.int32), gathered.astype(np.float32))
