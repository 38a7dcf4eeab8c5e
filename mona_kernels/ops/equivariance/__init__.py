"""Symmetric KL between a warped prediction and the prediction on the warped image (METHOD 4.4)."""

from mona_kernels.ops.equivariance.reference import equivariance

__all__ = ["equivariance"]
