"""Seeded draws of pixels and of ring slots, bit for bit the same on every backend (METHOD, Decision 12)."""

from mona_kernels.ops.sampling.reference import Census, census, draw_keys, philox, philox_block, thresholds

__all__ = ["Census", "census", "draw_keys", "philox", "philox_block", "thresholds"]
