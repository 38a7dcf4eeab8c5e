"""The contrast of hard queries with their class mean and with keys of other classes (METHOD 4.2.7 and 8.3.4)."""

from mona_kernels.ops.contrast.reference import MODES, Mode, contrast

__all__ = ["MODES", "Mode", "contrast"]
