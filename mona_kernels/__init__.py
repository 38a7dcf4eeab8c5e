"""Numeric operations with two faces: `native` (NumPy buffers, C++) and, for training, torch ops.

This package imports neither by itself, so a machine without torch can use `mona_kernels.native`.
"""

from typing import Literal

Kernels = Literal["native", "reference"]  # what computes the ops of training, as a run's settings name it
