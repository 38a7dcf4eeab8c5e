"""Seeded draws of pixels and of ring slots, bit for bit the same on every backend (METHOD, Decision 12)."""

from mona_kernels.ops.sampling.reference import draw_keys, philox, philox_block, sample_pixels, thresholds

__all__ = ["draw_keys", "philox", "philox_block", "sample_pixels", "thresholds"]
