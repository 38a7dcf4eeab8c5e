"""Every op of mona_kernels once, forward and backward, on meta tensors, to see which kernels it launches."""

from __future__ import annotations

import torch

from mona_kernels.ops.class_means import triton as class_means
from mona_kernels.ops.contrast import triton as contrast
from mona_kernels.ops.contrast.reference import MODES
from mona_kernels.ops.equivariance import triton as equivariance
from mona_kernels.ops.pyramid_gather import triton as pyramid
from mona_kernels.ops.sampling import triton as sampling

# The paper's scale: 3 labelled and 3 unlabelled slices; channels of the U-Net's levels, coarsest first.
BATCH, SIZE, QUERIES, KEYS, RING, FILL, DIM = 6, 256, 256, 512, 2048, 256, 512
CHANNELS = 256, 128, 64, 32, 16
DRAW = {"seed": 1, "step": 1, "stream": 0}


def run(every: bool) -> None:
    """float32, channels last, 4 classes; with `every`, also each other type, layout and the most classes."""
    maps_of(torch.float32, torch.channels_last, 4)
    contrasts(torch.float32)
    if every:
        maps_of(torch.float32, torch.contiguous_format, 4)
        maps_of(torch.float32, torch.channels_last, 256)
        for half in (torch.bfloat16, torch.float16):
            maps_of(half, torch.channels_last, 4)
            contrasts(half)


def maps_of(dtype: torch.dtype, layout: torch.memory_format, classes: int) -> None:
    def maps(channels: int, size: int) -> torch.Tensor:
        return torch.empty(BATCH, channels, size, size, dtype=dtype, device="meta", memory_format=layout)

    features = [maps(c, SIZE >> level) for level, c in zip(range(len(CHANNELS))[::-1], CHANNELS, strict=True)]
    labels = torch.empty(BATCH, SIZE, SIZE, dtype=torch.int64, device="meta")
    confidence = torch.empty(BATCH, SIZE, SIZE, device="meta")
    probabilities, logits = maps(classes, SIZE), maps(classes, SIZE)
    found = sampling.census(
        probabilities, labels, confidence, likely=0.7, hard=0.97, fill=FILL, queries=QUERIES, **DRAW
    )
    sums = class_means.class_sums(features, found.known, classes)
    class_means.class_sums_backward(sums, features, found.known, classes)
    pixels = found.queries.flatten()
    rows = pyramid.pyramid_gather(features, pixels, (SIZE, SIZE))
    pyramid.pyramid_gather_backward(rows, features, pixels, (SIZE, SIZE))
    points = torch.empty(BATCH, 2, SIZE, SIZE, device="meta").permute(0, 2, 3, 1)
    loss, weight = equivariance.equivariance(probabilities, labels > 0, points, logits)
    equivariance.equivariance_backward(loss, weight, probabilities, labels > 0, points, logits)


def contrasts(dtype: torch.dtype, classes: int = 4) -> None:
    queries = torch.empty(classes, QUERIES, DIM, dtype=dtype, device="meta")
    rings = torch.empty(classes, RING, DIM, dtype=dtype, device="meta")
    active = torch.empty(classes, dtype=torch.bool, device="meta")
    positives, law = (torch.empty(classes, n, device="meta") for n in (DIM, classes))
    filled = torch.empty(classes, dtype=torch.int64, device="meta")
    limits = torch.empty(classes, classes, dtype=torch.int64, device="meta")
    for mode in MODES:
        each = {"shared": 1, "exact": QUERIES, "expected": 0}[mode]
        keys = {"law": law, "filled": filled, "count": KEYS}
        if each:
            keys = {"drawn": sampling.draw_keys(limits, filled, KEYS, RING, queries=each, **DRAW)}
        loss, saved = contrast.contrast(queries, active, positives, rings, temperature=0.5, mode=mode, **keys)
        contrast.contrast_backward(loss, saved, queries, active, positives, rings, temperature=0.5, mode=mode, **keys)
