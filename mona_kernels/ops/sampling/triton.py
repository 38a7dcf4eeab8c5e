"""Census and key draws on a GPU: the same integers as the reference, so exactly the same pixels.

A census takes two passes.  The first counts every class in blocks of pixels.  In the second, each draw finds the block
of its pixel by bisection in the running sum over blocks, and reads only that block.  There is no list of pixels, and
the host never waits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mona_kernels.ops.sampling.reference import FILL, KEY, LOW, QUERY, Census
from mona_kernels.ops.tuning import block, require_floats

PIXELS = 1024  # per block: small enough for a draw to read it again, large enough to keep the sums few
STRIP = 128  # pixels of a block that are read at once
DRAWS = 16  # per program


def census(
    probabilities: Tensor,
    labels: Tensor,
    confidence: Tensor,
    *,
    likely: float,
    hard: float,
    fill: int,
    queries: int,
    seed: int,
    step: int,
    stream: int,
) -> Census:
    require_floats("sampling", probabilities=probabilities, confidence=confidence)
    (b, classes, h, w), device = probabilities.shape, labels.device
    total, blocks = b * h * w, triton.cdiv(b * h * w, PIXELS)
    known = torch.empty((b, h, w), dtype=torch.int16, device=device)
    asking = torch.empty_like(known)  # the class of hard pixels alone
    seen = torch.empty((2, blocks, classes), dtype=torch.int32, device=device)
    _count[(blocks,)](
        probabilities,
        labels.contiguous(),
        confidence.contiguous(),
        known,
        asking,
        seen,
        *probabilities.stride(),
        h * w,
        w,
        total,
        classes,
        blocks,
        likely,
        hard,
        PIXELS=PIXELS,
        BINS=block(classes, 256, 2),
    )
    seen = seen.cumsum(1, dtype=torch.int32)
    keys = torch.empty((classes, fill), dtype=torch.int64, device=device)
    asked = torch.empty((classes, queries), dtype=torch.int64, device=device)
    for pixels, sums, drawn, purpose in (known, seen[0], keys, FILL), (asking, seen[1], asked, QUERY):
        if drawn.numel():
            _draw[(triton.cdiv(drawn.shape[1], DRAWS), classes)](
                pixels,
                sums,
                drawn,
                total,
                classes,
                blocks,
                drawn.shape[1],
                *words(step, stream | purpose, seed, seed >> 32),
                EACH=purpose == FILL,
                PIXELS=PIXELS,
                STRIP=STRIP,
                DRAWS=DRAWS,
            )
    counts, hard_counts = (last.long() for last in seen[:, -1])  # an op's outputs may not share memory
    return Census(known, counts, keys, hard_counts, asked)


def draw_keys(
    limits: Tensor, filled: Tensor, count: int, ring: int, *, queries: int, seed: int, step: int, stream: int
) -> Tensor:
    classes, rings = limits.shape
    drawn = torch.empty((classes, queries, count), dtype=torch.int64, device=limits.device)
    if drawn.numel():
        _draw_keys[(triton.cdiv(queries * count, 256), classes)](
            limits.contiguous(),
            filled.contiguous(),
            drawn,
            queries * count,
            ring,
            rings,
            *words(step, stream | KEY, seed, seed >> 32),
            BLOCK=256,
        )
    return drawn


def words(*numbers: int) -> tuple[int, ...]:
    """The low 32 bits as signed integers: a kernel argument whose type does not depend on its value."""
    return tuple((n & LOW) - ((n & LOW) >> 31 << 32) for n in numbers)


FREE = [
    "step",
    "stream",
    "seed",
    "seed_high",
]  # these change at every step: the kernel must not be compiled anew for each value


@triton.jit
def _philox(index, cls, step, stream, seed, seed_high):
    """The first two words of the block with counter (index, class, step, stream)."""
    c1 = cls.to(tl.uint32)
    c2, c3 = step.to(tl.uint32, bitcast=True), stream.to(tl.uint32, bitcast=True)
    k0, k1 = seed.to(tl.uint32, bitcast=True), seed_high.to(tl.uint32, bitcast=True)
    first, second, _, _ = tl.philox_impl(index.to(tl.uint32), c1, c2, c3, k0, k1)
    return first, second


@triton.jit
def _below(word, n):
    """floor(word n / 2^32): a number below n."""
    return ((word.to(tl.uint64) * n.to(tl.uint64)) >> 32).to(tl.int64)


@triton.jit
def _count(
    probabilities,
    labels,
    confidence,
    known,
    asking,
    seen,
    stride_b,
    stride_c,
    stride_y,
    stride_x,
    area,
    width,
    total,
    classes,
    blocks,
    likely,
    hard,
    PIXELS: tl.constexpr,
    BINS: tl.constexpr,
):
    program = tl.program_id(0)
    p = program * PIXELS + tl.arange(0, PIXELS)
    here = p < total
    label = tl.load(labels + p, mask=here, other=-1)
    sure = tl.load(confidence + p, mask=here, other=0).to(tl.float32) >= likely
    valid = here & sure & (label >= 0) & (label < classes)
    cls = tl.where(valid, label, 0).to(tl.int32)
    image, place = (p // area).to(tl.int64), p % area
    where = image * stride_b + cls.to(tl.int64) * stride_c + (place // width) * stride_y + (place % width) * stride_x
    own = tl.load(probabilities + where, mask=valid, other=1).to(tl.float32)
    asks = valid & (own < hard)
    tl.store(known + p, tl.where(valid, cls, -1).to(tl.int16), mask=here)
    tl.store(asking + p, tl.where(asks, cls, -1).to(tl.int16), mask=here)
    bins = tl.arange(0, BINS)
    row = seen + program * classes + bins
    tl.store(row, tl.histogram(cls, BINS, mask=valid), mask=bins < classes)
    tl.store(row + blocks * classes, tl.histogram(cls, BINS, mask=asks), mask=bins < classes)


@triton.jit(do_not_specialize=FREE)
def _draw(
    pixels,
    seen,  # blocks classes: pixels of the class up to the end of a block
    drawn,
    total,
    classes,
    blocks,
    count,
    step,
    stream,
    seed,
    seed_high,
    EACH: tl.constexpr,  # no more draws than there are pixels
    PIXELS: tl.constexpr,
    STRIP: tl.constexpr,
    DRAWS: tl.constexpr,
):
    c = tl.program_id(1)
    i = tl.program_id(0) * DRAWS + tl.arange(0, DRAWS)
    n = tl.load(seen + (blocks - 1) * classes + c)
    word, _ = _philox(i, c, step, stream, seed, seed_high)
    chosen = _below(word, n).to(tl.int32)
    # The first block at whose end more than `chosen` pixels have been seen.
    low, high = tl.zeros([DRAWS], tl.int32), tl.zeros([DRAWS], tl.int32) + (blocks - 1)
    width = blocks
    while width > 1:
        middle = (low + high) // 2
        beyond = tl.load(seen + middle * classes + c) > chosen
        low, high = tl.where(beyond, low, tl.minimum(middle + 1, high)), tl.where(beyond, middle, high)
        width = (width + 1) // 2
    rank = chosen - tl.load(seen + (low - 1) * classes + c, mask=low > 0, other=0)
    # Its place there: how many pixels come before the class has been seen once more than `rank` times.
    before, found = tl.zeros([DRAWS], tl.int32), tl.zeros([DRAWS], tl.int32)
    for start in range(0, PIXELS, STRIP):
        p = low[:, None] * PIXELS + start + tl.arange(0, STRIP)[None, :]
        hit = (tl.load(pixels + p, mask=p < total, other=-1) == c).to(tl.int32)
        before += tl.sum((tl.cumsum(hit, 1) + found[:, None] <= rank[:, None]).to(tl.int32), 1)
        found += tl.sum(hit, 1)
    pixel = (low * PIXELS + before).to(tl.int64)
    some = i < n if EACH else (i >= 0) & (n > 0)
    tl.store(drawn + c * count + i, tl.where(some, pixel, -1), mask=i < count)


@triton.jit(do_not_specialize=FREE)
def _draw_keys(limits, filled, drawn, count, ring, rings, step, stream, seed, seed_high, BLOCK: tl.constexpr):
    c = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = _philox(i, c, step, stream, seed, seed_high)
    word = first.to(tl.int64)
    negative = tl.zeros([BLOCK], tl.int32)
    for v in range(rings):
        negative += (tl.load(limits + c * rings + v) <= word).to(tl.int32)
    some = negative < rings
    slot = _below(second, tl.load(filled + negative, mask=some, other=0))
    flat = negative.to(tl.int64) * ring + slot
    tl.store(drawn + c.to(tl.int64) * count + i, tl.where(some, flat, -1), mask=i < count)
