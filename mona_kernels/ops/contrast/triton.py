"""The contrast on a GPU: tiles of queries against tiles of keys, which are read directly from the rings.

A program holds a tile of queries of one class and streams keys past it with an online log-sum-exp.  The forward pass
splits the keys among programs, whose log-sum-exps are joined afterwards; the backward pass splits the embedding
instead and computes the scores again, so that nothing larger than queries x splits is kept.  The three modes differ
in which keys come: `shared` the class's draws, `expected` all slots in use with the logarithm of their expected
number, `exact` the draws of one query; a tile is then that query alone and products are sums, not matrix products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mona_kernels.ops.contrast.reference import Mode, check_mode
from mona_kernels.ops.tuning import block, config, require_floats, tuned

# The most splits of the keys in the forward pass, and the fewest keys per split.  4 classes of 256 queries in tiles of
# 16 with 512 keys make 256 programs, enough for every multiprocessor.
SPLITS, FEWEST = 16, 128


class Saved(NamedTuple):
    """What the backward pass needs besides the inputs."""

    total: Tensor  # C Q: log-sum-exp of the positive and all keys
    attraction: Tensor  # C Q: the positive's score / temperature
    inverse: Tensor  # C Q: 1 / length of a query
    positive_inverse: Tensor  # C


def contrast(
    queries: Tensor,
    active: Tensor,
    positives: Tensor,
    rings: Tensor,
    *,
    temperature: float,
    mode: Mode,
    drawn: Tensor | None = None,
    law: Tensor | None = None,
    filled: Tensor | None = None,
    count: int = 0,
) -> tuple[Tensor, Saved]:
    require_floats("contrast", queries=queries, positives=positives, rings=rings)
    classes, each, dim = queries.shape
    saved = Saved(*(queries.new_empty(shape, dtype=torch.float32) for shape in [(classes, each)] * 3 + [(classes,)]))
    _attract[(triton.cdiv(each, 16), classes)](
        queries,
        positives,
        saved.attraction,
        saved.inverse,
        saved.positive_inverse,
        *queries.stride(),
        *positives.stride(),
        each,
        dim,
        1 / temperature,
        QUERIES=16,
        DIMS=block(dim, 128),
    )
    keys = _Keys(queries, rings, mode, drawn, law, filled, count)
    splits = max(1, min(SPLITS, triton.cdiv(keys.number, FEWEST)))
    span = triton.cdiv(triton.cdiv(keys.number, splits), FEWEST) * FEWEST
    parts = queries.new_empty((classes, each, splits), dtype=torch.float32)
    kernel = _repel_rows if mode == "exact" else _repel_tiles
    kernel[lambda meta: (classes * triton.cdiv(each, meta["QUERIES"]), splits)](
        queries,
        keys.rows,
        saved.inverse,
        active.view(torch.uint8),
        *keys.tensors,
        parts,
        *queries.stride(),
        *keys.rows.stride(),
        each,
        dim,
        keys.number,
        *keys.numbers,
        span,
        1 / temperature,
        **keys.meta,
    )
    torch.logaddexp(saved.attraction, parts.logsumexp(2), out=saved.total)
    losses = (saved.total - saved.attraction).mean(1)
    return losses.masked_fill(~active, 0).sum() / active.sum().clamp_min(1), saved


def contrast_backward(
    grad: Tensor,
    saved: Saved,
    queries: Tensor,
    active: Tensor,
    positives: Tensor,
    rings: Tensor,
    *,
    temperature: float,
    mode: Mode,
    drawn: Tensor | None = None,
    law: Tensor | None = None,
    filled: Tensor | None = None,
    count: int = 0,
) -> Tensor:
    classes, each, dim = queries.shape
    keys = _Keys(queries, rings, mode, drawn, law, filled, count)
    scale = (grad / (temperature * each * active.sum().clamp_min(1))).float()
    out = queries.new_empty(queries.shape)
    kernel = _pull_rows if mode == "exact" else _pull_tiles
    kernel[lambda meta: (classes * triton.cdiv(each, meta["QUERIES"]), triton.cdiv(dim, meta["OUT"]))](
        queries,
        keys.rows,
        positives,
        *saved,
        active.view(torch.uint8),
        *keys.tensors,
        scale,
        out,
        *queries.stride(),
        *keys.rows.stride(),
        *positives.stride(),
        *out.stride(),
        each,
        dim,
        keys.number,
        *keys.numbers,
        temperature,
        **keys.meta,
    )
    return out


class _Keys:
    """The arguments that tell the kernels which keys to read."""

    def __init__(
        self,
        queries: Tensor,
        rings: Tensor,
        mode: Mode,
        drawn: Tensor | None,
        law: Tensor | None,
        filled: Tensor | None,
        count: int,
    ) -> None:
        self.rows = rings.flatten(0, 1)  # V R, D: a view, because the rings are contiguous
        self.numbers = rings.shape[1], rings.shape[0], float(count)
        check_mode(mode, drawn, law, filled, count)
        if mode == "expected":
            assert law is not None and filled is not None
            self.number = len(self.rows)
            self.tensors = law.contiguous(), filled.contiguous()
        else:
            assert drawn is not None
            self.number = drawn.shape[2]
            self.tensors = (drawn.contiguous(),) * 2  # there is no `filled` to read
        # Two half types of one kind are multiplied as they are, which is exact; else float32, in three passes of tf32.
        alike = queries.dtype == rings.dtype
        self.meta: dict[str, Any] = {"MODE": mode, "PRODUCT": _DTYPES[queries.dtype if alike else torch.float32]}


_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit
def _attract(
    queries,
    positives,
    attraction,
    inverse,
    positive_inverse,
    stride_c,
    stride_q,
    stride_d,
    stride_pc,
    stride_pd,
    each,
    dim,
    sharpness,
    QUERIES: tl.constexpr,
    DIMS: tl.constexpr,
):
    c = tl.program_id(1).to(tl.int64)
    q = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    product, square = tl.zeros([QUERIES], tl.float32), tl.zeros([QUERIES], tl.float32)
    positive_square = 0.0
    for start in range(0, dim, DIMS):
        d = start + tl.arange(0, DIMS)
        there = (q < each)[:, None] & (d < dim)[None, :]
        where = c * stride_c + q[:, None] * stride_q + d[None, :] * stride_d
        query = tl.load(queries + where, mask=there, other=0.0).to(tl.float32)
        positive = tl.load(positives + c * stride_pc + d * stride_pd, mask=d < dim, other=0.0).to(tl.float32)
        product += tl.sum(query * positive[None, :], 1)
        square += tl.sum(query * query, 1)
        positive_square += tl.sum(positive * positive, 0)
    length = 1 / tl.maximum(tl.sqrt(square), 1e-12)  # as F.normalize
    positive_length = 1 / tl.maximum(tl.sqrt(positive_square), 1e-12)
    tl.store(inverse + c * each + q, length, mask=q < each)
    tl.store(attraction + c * each + q, product * length * positive_length * sharpness, mask=q < each)
    tl.store(positive_inverse + c, positive_length)


@triton.jit
def _keys(drawn, filled, owner, n, number, ring, rings, count, MODE: tl.constexpr):
    """Ring rows of keys n, and the logarithm of how often each counts: -inf for those that must not be read."""
    if MODE == "expected":
        v = n // ring
        slots = tl.load(filled + v, mask=n < number, other=0)
        share = tl.load(drawn + owner * rings + v, mask=n < number, other=0).to(tl.float32)  # the law
        weight = tl.where(n - v * ring < slots, share * count / tl.maximum(slots, 1).to(tl.float32), 0.0)
        row = n.to(tl.int64)
        times = tl.where(weight > 0, tl.log(weight), float("-inf"))
    else:
        row = tl.load(drawn + owner * number + n, mask=n < number, other=-1)
        times = tl.where(row >= 0, 0.0, float("-inf"))
    return row, times


@triton.jit
def _scores(
    query, rows, row, times, stride_d, stride_r, stride_rd, present, dim, MODE: tl.constexpr, PRODUCT: tl.constexpr,
    DIMS: tl.constexpr,
):  # fmt: skip
    """Products (queries, keys) of a tile, the embedding in pieces."""
    product = tl.zeros([query.shape[0], row.shape[0]], tl.float32)
    # Rings that a class does not use, such as its own, cost nothing.
    reached = tl.where(tl.max(times, 0) > float("-inf"), dim, 0)
    for start in range(0, reached, DIMS):
        d = start + tl.arange(0, DIMS)
        q = tl.load(query[:, None] + d[None, :] * stride_d, mask=present[:, None] & (d < dim)[None, :], other=0.0)
        there = (d < dim)[:, None] & (times > float("-inf"))[None, :]
        k = tl.load(rows + row[None, :] * stride_r + d[:, None] * stride_rd, mask=there, other=0.0)
        if MODE == "exact":
            product += tl.sum(tl.trans(q).to(tl.float32) * k.to(tl.float32), 0)[None, :]
        else:
            product = tl.dot(q.to(PRODUCT), k.to(PRODUCT), product, input_precision="tf32x3")
    return product


@triton.jit
def _repel(
    queries,
    rows,
    inverse,
    active,
    drawn,
    filled,
    parts,
    stride_c,
    stride_q,
    stride_d,
    stride_r,
    stride_rd,
    each,
    dim,
    number,
    ring,
    rings,
    count,
    span,
    sharpness,
    MODE: tl.constexpr,
    PRODUCT: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    DIMS: tl.constexpr,
):
    tiles, split = tl.cdiv(each, QUERIES), tl.program_id(1)
    c = (tl.program_id(0) // tiles).to(tl.int64)
    q = tl.program_id(0) % tiles * QUERIES + tl.arange(0, QUERIES)
    present = q < each
    owner = tl.program_id(0).to(tl.int64) if MODE == "exact" else c
    query = queries + c * stride_c + q * stride_q
    scale = tl.load(inverse + c * each + q, mask=present, other=0.0) * sharpness
    most, total = tl.zeros([QUERIES], tl.float32) - 1e30, tl.zeros([QUERIES], tl.float32)
    # Keys of an inactive class need not be read.
    end = tl.where(tl.load(active + c) != 0, tl.minimum(number, (split + 1) * span), 0)
    for start in range(split * span, end, KEYS):
        n = start + tl.arange(0, KEYS)
        row, times = _keys(drawn, filled, owner, n, number, ring, rings, count, MODE)
        product = _scores(query, rows, row, times, stride_d, stride_r, stride_rd, present, dim, MODE, PRODUCT, DIMS)
        score = product * scale[:, None] + times[None, :]
        higher = tl.maximum(most, tl.max(score, 1))
        total = total * tl.exp(most - higher) + tl.sum(tl.exp(score - higher[:, None]), 1)
        most = higher
    where = (c * each + q) * tl.num_programs(1) + split
    tl.store(parts + where, most + tl.log(total), mask=present)


@triton.jit
def _pull(
    queries,
    rows,
    positives,
    totals,
    attraction,
    inverse,
    positive_inverse,
    active,
    drawn,
    filled,
    grad,
    out,
    stride_c,
    stride_q,
    stride_d,
    stride_r,
    stride_rd,
    stride_pc,
    stride_pd,
    stride_oc,
    stride_oq,
    stride_od,
    each,
    dim,
    number,
    ring,
    rings,
    count,
    temperature,
    MODE: tl.constexpr,
    PRODUCT: tl.constexpr,
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    DIMS: tl.constexpr,
    OUT: tl.constexpr,
):
    """dq = (sum_n w_n k_n - (1 - w+) k+) / t without its part along q; w the softmax weights, q of length 1."""
    tiles = tl.cdiv(each, QUERIES)
    c = (tl.program_id(0) // tiles).to(tl.int64)
    q = tl.program_id(0) % tiles * QUERIES + tl.arange(0, QUERIES)
    present = q < each
    owner = tl.program_id(0).to(tl.int64) if MODE == "exact" else c
    query = queries + c * stride_c + q * stride_q
    length = tl.load(inverse + c * each + q, mask=present, other=0.0)
    total = tl.load(totals + c * each + q, mask=present, other=0.0)
    e = tl.program_id(1) * OUT + tl.arange(0, OUT)
    pull, mean = tl.zeros([QUERIES, OUT], tl.float32), tl.zeros([QUERIES], tl.float32)
    works = tl.load(active + c) != 0
    for start in range(0, tl.where(works, number, 0), KEYS):
        n = start + tl.arange(0, KEYS)
        row, times = _keys(drawn, filled, owner, n, number, ring, rings, count, MODE)
        product = _scores(query, rows, row, times, stride_d, stride_r, stride_rd, present, dim, MODE, PRODUCT, DIMS)
        score = product * (length / temperature)[:, None]
        weight = tl.exp(score + times[None, :] - total[:, None])
        mean += tl.sum(weight * score, 1)
        there = (times > float("-inf"))[:, None] & (e < dim)[None, :]
        k = tl.load(rows + row[:, None] * stride_r + e[None, :] * stride_rd, mask=there, other=0.0).to(tl.float32)
        if MODE == "exact":
            pull += tl.sum(tl.trans(weight) * k, 0)[None, :]
        else:
            pull = tl.dot(weight, k, pull, input_precision="tf32x3")
    attracted = tl.load(attraction + c * each + q, mask=present, other=0.0)
    away = 1 - tl.exp(attracted - total)
    positive = tl.load(positives + c * stride_pc + e * stride_pd, mask=e < dim, other=0.0).to(tl.float32)
    positive *= tl.load(positive_inverse + c)
    there = present[:, None] & (e < dim)[None, :]
    own = tl.load(query[:, None] + e[None, :] * stride_d, mask=there, other=0.0).to(tl.float32) * length[:, None]
    # Its part along q comes from the scores, so no program needs the others' pieces; a query too short to be
    # normalised (F.normalize) keeps it.
    along = tl.where(length < 1e12, temperature * (mean - away * attracted), 0.0)
    pull = (pull - away[:, None] * positive[None, :] - along[:, None] * own) * length[:, None] * tl.load(grad)
    where = c * stride_oc + q[:, None] * stride_oq + e[None, :] * stride_od
    tl.store(out + where, tl.where(works, pull, 0.0), mask=there)


_TILES = [config(4, 3, QUERIES=16, KEYS=64, DIMS=32), config(4, 3, QUERIES=32, KEYS=32, DIMS=32)]
_ROWS = [config(4, 2, QUERIES=1, KEYS=16, DIMS=128), config(4, 2, QUERIES=1, KEYS=32, DIMS=64)]
_KEY = ["each", "dim", "number"]
_repel_tiles, _repel_rows = tuned(_repel, _TILES, _KEY), tuned(_repel, _ROWS, _KEY)
_pull_tiles = tuned(
    _pull,
    [config(4, 2, QUERIES=16, KEYS=32, DIMS=32, OUT=128), config(8, 2, QUERIES=16, KEYS=32, DIMS=32, OUT=256)],
    _KEY,
)
_pull_rows = tuned(
    _pull,
    [config(4, 2, QUERIES=1, KEYS=16, DIMS=128, OUT=256), config(4, 2, QUERIES=1, KEYS=32, DIMS=64, OUT=128)],
    _KEY,
)
