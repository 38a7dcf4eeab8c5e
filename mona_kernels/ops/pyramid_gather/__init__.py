"""Rows of the upsampled feature pyramid at chosen pixels, without upsampling anything (METHOD 8.3.3)."""

from mona_kernels.ops.pyramid_gather.reference import pyramid_gather, taps

__all__ = ["pyramid_gather", "taps"]
