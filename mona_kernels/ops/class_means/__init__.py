"""Sums of the upsampled feature pyramid over the pixels of each class, without upsampling it (METHOD 8.3.2)."""

from mona_kernels.ops.class_means.reference import class_sums, interpolation

__all__ = ["class_sums", "interpolation"]
