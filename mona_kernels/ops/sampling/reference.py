"""Philox-4x32-10, the census of a batch and the draws based on it: Triton and C++ must match it bit for bit.

Counter = (index, class, step, stream), key = the seed's low and high 32 bits.  Words are held in int64: torch has
no uint32 arithmetic.  A number below n is floor(word * n / 2^32), exact in int64 while n < 2^31.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOW = 0xFFFFFFFF
ONE = 1 << 32  # the whole range of a word
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57  # this and the next: Salmon et al., "Parallel random numbers", SC 2011
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10

# Low byte of a Philox stream, which the caller leaves 0: no two draws of a step share a counter.
FILL, QUERY, KEY = range(3)

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox_block(counter: Words, key: tuple[int, int]) -> Words:
    """Four words for each counter; the tensors of the counter broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _multiply(c0, MULTIPLIERS[0])
        high1, low1 = _multiply(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def philox(index: Tensor, cls: Tensor, step: int, stream: int, seed: int) -> Tensor:
    """The first word of each block, 0 <= word < 2^32."""
    return _words(index, cls, step, stream, seed)[0]


class Census(NamedTuple):
    """Pixel counts of each class in a batch, and the pixels drawn from it as flat indices into B H W."""

    known: Tensor  # B H W, int16: the label if it is a class and confident enough, else -1
    counts: Tensor  # C, int64: pixels of each class in `known`
    keys: Tensor  # C fill, int64: drawn from those, at most as many (then -1): one stray pixel must not fill a ring
    hard: Tensor  # C, int64: those of `known` whose own class has a probability below `hard`
    queries: Tensor  # C queries, int64: drawn from the hard ones; -1 if there are none


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
    """Counts and draws of each class in one pass over the batch; probabilities B C H W, labels and confidence B H W.

    Floats are only compared, in float32, so every backend picks the same pixels.  Draws are uniform and with
    replacement: draw i of class c takes the floor(word n / 2^32)-th of n pixels in raster order, where the word has
    counter (i, c, step, stream | FILL or QUERY).
    """
    classes = probabilities.shape[1]
    is_class = (labels >= 0) & (labels < classes)
    known = torch.where(is_class & (confidence.float() >= likely), labels, -1).to(torch.int16)
    own = probabilities.gather(1, known.clamp_min(0).long()[:, None])[:, 0].float()
    asking = torch.where(own < hard, known, -1)
    keys, counts = _draw(known, classes, fill, step, stream | FILL, seed)
    keys = keys.masked_fill(torch.arange(fill, device=keys.device) >= counts[:, None], -1)
    chosen, found = _draw(asking, classes, queries, step, stream | QUERY, seed)
    return Census(known, counts, keys, found, chosen)


def _draw(eligible: Tensor, classes: int, count: int, step: int, stream: int, seed: int) -> tuple[Tensor, Tensor]:
    """`count` pixels of every class (C, count), all -1 for a class without any; and how many each class has (C)."""
    ids = torch.arange(classes, device=eligible.device)[:, None]
    seen = (eligible.reshape(-1) == ids).cumsum(1, dtype=torch.int32)  # C BHW: pixels of the class so far
    counts = seen[:, -1].long()
    word = philox(torch.arange(count, device=eligible.device), ids, step, stream, seed)  # C count
    chosen = (word * counts[:, None]) >> 32
    pixels = torch.searchsorted(seen, (chosen + 1).int())  # the first place where so many have been seen
    return pixels.masked_fill(counts[:, None] == 0, -1), counts


def thresholds(law: Tensor, filled: Tensor) -> Tensor:
    """Cumulative thresholds (C, V), int64 in 0..2^32: class v is drawn where `t[v-1] <= word < t[v]`.

    The law (C, V) is restricted to rings that are not empty, and rescaled.  The last reachable class ends at 2^32, so
    that rounding never leaves a word without a class; a row with no reachable class is all 0.
    """
    weight = law.double() * (filled > 0)
    total = weight.sum(1, keepdim=True)
    reachable = weight > 0
    # Rounded down before they are added up: sums of integers are the same in any order, on any device.
    width = (weight / total.masked_fill(total == 0, 1) * ONE).long()
    later = reachable.flip(1).cumsum(1).flip(1) - reachable.long()  # reachable classes after this one
    return width.cumsum(1).masked_fill(later == 0, ONE) * reachable.any(1, keepdim=True)


def draw_keys(
    limits: Tensor, filled: Tensor, count: int, ring: int, *, queries: int, seed: int, step: int, stream: int
) -> Tensor:
    """Keys (C, queries, count) as flat ring slots v * ring + slot; -1 if the law reaches no filled ring.

    `limits` (C, V) are `thresholds`.  Key n of query q of class c has counter (q * count + n, c, step, stream | KEY):
    word 0 picks the class v, word 1 the slot below filled[v].  A set shared by all queries is `queries=1`, the draw of
    query 0.
    """
    classes, rings = limits.shape
    index = torch.arange(queries * count, device=limits.device)
    ids = torch.arange(classes, device=limits.device)[:, None]
    first, second, _, _ = _words(index, ids, step, stream | KEY, seed)  # C queries*count
    negative = torch.searchsorted(limits, first, right=True)  # how many thresholds are at or below the word
    nothing = negative == rings
    slot = (second * filled[negative.masked_fill(nothing, 0)]) >> 32
    return (negative * ring + slot).masked_fill(nothing, -1).view(classes, queries, count)


def _words(index: Tensor, cls: Tensor, step: int, stream: int, seed: int) -> Words:
    fixed = (torch.tensor(n & LOW, device=index.device) for n in (step, stream))
    return philox_block((index, cls, *fixed), (seed & LOW, seed >> 32 & LOW))


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a 64-bit product, in two halves so that int64 never overflows."""
    low = word * (constant & 0xFFFF)
    high = word * (constant >> 16) + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | (low & 0xFFFF)
