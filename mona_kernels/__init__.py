"""Numeric operations: `native` (C++ on NumPy arrays) and, for training, `ops` (torch ops).

This package imports neither by itself, so a machine without torch can use `mona_kernels.native`.  Comments cite
docs/method.md: "method 4.2" is its section 4.2, "decision 12" an entry of its section 7.
"""

from typing import Literal

Kernels = Literal["native", "reference"]  # what computes the training ops, as named in a run's settings
