"""Every op, asked the same: is it registered as torch wants it, are its gradients right, does it survive a compiler,
dirty memory, any number of threads and odd layouts.  What the ops compute is in the tests of their own names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mona_kernels.ops import NATIVE, REFERENCE, Ops
from mona_kernels.ops.sampling import thresholds

C, SIZE, RING = 3, (9, 14), 7


class Scene:
    """Inputs of all ops, small and odd; `leaves` are those with a gradient."""

    def __init__(self, dtype: torch.dtype = torch.float64, layout: str = "channels_last") -> None:
        g = torch.Generator().manual_seed(3)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

        sizes = [(2, 5), (5, 3), SIZE]
        self.features = [laid_out(normal(2, c, *size), layout) for c, size in zip((19, 6, 2), sizes, strict=True)]
        self.probabilities = laid_out(normal(2, C, *SIZE).softmax(1), layout)
        self.logits = laid_out(normal(2, C, *SIZE), layout)
        self.labels = torch.randint(-1, C + 1, (2, *SIZE), generator=g)
        self.confidence = torch.rand(2, *SIZE, generator=g)
        self.points = (torch.rand(2, 2, *SIZE, generator=g) * 2.4 - 1.2).permute(0, 2, 3, 1)
        self.queries, self.positives = normal(C, 4, 10), normal(C, 10)
        self.filled = torch.tensor([RING, 2, 0])
        used = torch.arange(RING) < self.filled[:, None]
        self.rings = F.normalize(normal(C, RING, 10), dim=-1) * used[..., None]
        law = torch.rand(C, C, generator=g).to(dtype) * (self.filled > 0) * ~torch.eye(C, dtype=torch.bool)
        self.law = law / law.sum(1, keepdim=True)
        self.active = torch.tensor([True, False, True])
        for leaf in self.leaves:
            leaf.requires_grad_()

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.features, self.queries, self.logits]


def laid_out(maps: Tensor, layout: str) -> Tensor:
    if layout == "channels_last":
        return maps.contiguous(memory_format=torch.channels_last)
    if layout == "turned":
        return maps.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "sliced":
        return torch.cat([maps, maps], 3)[..., ::2] if maps.shape[3] > 1 else maps
    return maps.contiguous()


def census(ops: Ops, s: Scene) -> tuple[Tensor, ...]:
    draws = {"fill": 40, "queries": 5, "seed": 2**63 + 9, "step": 4, "stream": 256}
    return tuple(ops.census(s.probabilities, s.labels, s.confidence, likely=0.3, hard=0.4, **draws))


def drawn(ops: Ops, s: Scene, queries: int) -> Tensor:
    limits = thresholds(s.law, s.filled)
    return ops.draw_keys(limits, s.filled, 11, RING, queries=queries, seed=1, step=2, stream=0)


def contrast(mode: str) -> Callable[[Ops, Scene], Tensor]:
    def run(ops: Ops, s: Scene) -> Tensor:
        given: dict[str, Any] = {"law": s.law, "filled": s.filled, "count": 11}
        if mode != "expected":
            each = 4 if mode == "exact" else 1
            given = {"drawn": drawn(NATIVE, s, each)}  # of the reference inductor would write Philox out for minutes
        return ops.contrast(s.queries, s.active, s.positives, s.rings, temperature=0.5, mode=mode, **given)

    return run


def known(s: Scene) -> Tensor:
    return s.labels.short()


def pixels(s: Scene) -> Tensor:
    last = 2 * SIZE[0] * SIZE[1] - 1
    return torch.tensor([0, 5, -1, 130, last, 5, 77, -1, last - 3])


INTEGER: dict[str, Callable[[Ops, Scene], Any]] = {
    "census": census,
    "draw_keys": lambda ops, s: (drawn(ops, s, 4),),
}
FLOATING: dict[str, Callable[[Ops, Scene], Tensor]] = {
    "class_sums": lambda ops, s: ops.class_sums(s.features, known(s), C),
    "pyramid_gather": lambda ops, s: ops.pyramid_gather(s.features, pixels(s), SIZE),
    "shared": contrast("shared"),
    "exact": contrast("exact"),
    "expected": contrast("expected"),
    "equivariance": lambda ops, s: ops.equivariance(s.probabilities, s.confidence < 0.6, s.points, s.logits),
}


def gradients(value: Tensor, s: Scene) -> list[Tensor | None]:
    weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return list(torch.autograd.grad((value * weight.to(value)).sum(), s.leaves, allow_unused=True))


def agree(found: Any, expected: Any, **tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("layout", ["channels_last", "plain", "turned", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("op", FLOATING)
def test_kernels_are_the_reference(op: str, dtype: torch.dtype, layout: str) -> None:
    s = Scene(dtype, layout)
    found, expected = FLOATING[op](NATIVE, s), FLOATING[op](REFERENCE, s)
    assert found.dtype == expected.dtype
    close = {torch.float64: 1e-11, torch.float32: 2e-5}.get(dtype, 2e-5)
    torch.testing.assert_close(found, expected, rtol=close, atol=close)
    rounded = 2e-2 if dtype in (torch.bfloat16, torch.float16) else close  # gradients in half precision: 8 bits
    agree(gradients(found, s), gradients(expected, s), rtol=rounded, atol=rounded * (1 if rounded < 1e-3 else 0.1))


@pytest.mark.parametrize("op", INTEGER)
@pytest.mark.parametrize("layout", ["channels_last", "turned", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_draws_are_the_references_to_the_bit(op: str, dtype: torch.dtype, layout: str) -> None:
    s = Scene(dtype, layout)
    assert all(torch.equal(a, b) for a, b in zip(INTEGER[op](NATIVE, s), INTEGER[op](REFERENCE, s), strict=True))


@pytest.mark.parametrize("op", FLOATING)
def test_gradcheck(op: str) -> None:
    s = Scene()
    used = [leaf for leaf, g in zip(s.leaves, gradients(FLOATING[op](NATIVE, s), s), strict=True) if g is not None]
    assert used and torch.autograd.gradcheck(lambda *_: FLOATING[op](NATIVE, s), used)


def calls(op: str) -> list[tuple[Any, tuple[Any, ...]]]:
    """The registered op, or ops, and the arguments that the public function gives them."""
    s, mona = Scene(torch.float32), torch.ops.mona
    grad = torch.rand(len(pixels(s)), 27)
    features = [f.detach() for f in s.features]
    loss = (s.queries, s.active, s.positives, s.rings, 0.5)
    return {
        "census": [(mona.census.default, (s.probabilities, s.labels, s.confidence, 0.3, 0.4, 40, 5, 9, 4, 256))],
        "draw_keys": [(mona.draw_keys.default, (thresholds(s.law, s.filled), s.filled, 11, RING, 4, 1, 2, 0))],
        "class_sums": [
            (mona.class_sums.default, (s.features, known(s), C)),
            (mona.class_sums_backward.default, (grad[:C], features, known(s), C)),
        ],
        "pyramid_gather": [
            (mona.pyramid_gather.default, (s.features, pixels(s), *SIZE)),
            (mona.pyramid_gather_backward.default, (grad, features, pixels(s), *SIZE)),
        ],
        "contrast": [
            (mona.contrast.default, (*loss, "shared", drawn(NATIVE, s, 1), None, None, 0)),
            (mona.contrast.default, (*loss, "exact", drawn(NATIVE, s, 4), None, None, 0)),
            (mona.contrast.default, (*loss, "expected", None, s.law, s.filled, 11)),
        ],
        "equivariance": [(mona.equivariance.default, (s.probabilities, s.confidence, s.points, s.logits))],
    }[op]


@pytest.mark.parametrize("op", ["census", "draw_keys", "class_sums", "pyramid_gather", "contrast", "equivariance"])
def test_opcheck(op: str) -> None:
    for registered, arguments in calls(op):
        torch.library.opcheck(registered, arguments)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.full)])
@pytest.mark.parametrize("op", [*INTEGER, *FLOATING])
def test_compiled_is_eager(op: str, backend: str) -> None:
    torch.compiler.reset()  # one lambda for all ops, and a process compiles it eight times at most
    s = Scene(torch.float32)
    run = {**INTEGER, **FLOATING}[op]
    compiled = torch.compile(lambda: run(NATIVE, s), backend=backend, fullgraph=True)()
    if op in INTEGER:
        assert all(torch.equal(a, b) for a, b in zip(compiled, run(NATIVE, s), strict=True))
        return
    eager = run(NATIVE, s)
    assert torch.equal(compiled, eager)
    agree(gradients(compiled, s), gradients(eager, s), rtol=0, atol=0)


@pytest.mark.parametrize("op", [*INTEGER, *FLOATING])
def test_dirty_memory_does_not_show(op: str) -> None:
    """torch fills what `empty` returns with NaN, or the largest integer, before a kernel sees it."""
    s, run = Scene(torch.float32), {**INTEGER, **FLOATING}[op]
    clean = run(NATIVE, s)
    clean_gradients = [] if op in INTEGER else gradients(clean, s)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        assert torch.empty(3).isnan().all()  # or this test would prove nothing
        dirty = run(NATIVE, s)
        if op in INTEGER:
            assert all(torch.equal(a, b) for a, b in zip(dirty, clean, strict=True))
        else:
            assert torch.equal(dirty, clean)
            agree(gradients(dirty, s), clean_gradients, rtol=0, atol=0)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("op", [*INTEGER, *FLOATING])
def test_the_number_of_threads_changes_nothing(op: str) -> None:
    s, run = Scene(torch.float32), {**INTEGER, **FLOATING}[op]
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        value = run(NATIVE, s)
        results.append([*value] if op in INTEGER else [value, *gradients(value, s)])
    torch.set_num_threads(1)
    for other in results[1:]:
        agree(other, results[0], rtol=0, atol=0)


@pytest.mark.parametrize("classes", [1, 256])
def test_one_class_and_as_many_as_there_may_be(classes: int) -> None:
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (1, 40, 33), generator=g)
    chance, sure = torch.rand(1, classes, 40, 33, generator=g), torch.rand(1, 40, 33, generator=g)
    draws = {"likely": 0.2, "hard": 0.5, "fill": 3, "queries": 3, "seed": 5, "step": 6, "stream": 0}
    a, b = (ops.census(chance, labels, sure, **draws) for ops in (NATIVE, REFERENCE))
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    levels = [torch.rand(1, 3, 7, 9, generator=g), torch.rand(1, 2, 40, 33, generator=g)]
    sums = [ops.class_sums(levels, a.known, classes) for ops in (NATIVE, REFERENCE)]
    torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-5)
    logits = torch.randn(chance.shape, generator=g)
    points = torch.rand(1, 40, 33, 2, generator=g) * 2 - 1
    losses = [ops.equivariance(chance.softmax(1), sure, points, logits) for ops in (NATIVE, REFERENCE)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6)


def test_draws_that_point_nowhere_are_not_read() -> None:
    """A law of NaN makes any draws at all; the loss may be NaN, but memory is not."""
    s = Scene(torch.float32)
    for mode, queries in (("shared", 1), ("exact", 4)):
        wild = torch.full((C, queries, 11), 2**40)
        wild[..., ::2] = -(2**40)
        NATIVE.contrast(s.queries, s.active, s.positives, s.rings, temperature=0.5, mode=mode, drawn=wild).backward()
    with pytest.raises(ValueError, match="expected pixels below"):
        NATIVE.pyramid_gather(s.features, torch.tensor([2 * SIZE[0] * SIZE[1]]), SIZE)


def test_wrong_shapes_are_refused() -> None:
    s = Scene(torch.float32)
    with pytest.raises(ValueError, match=r"expected probabilities, mask and points"):
        NATIVE.equivariance(s.probabilities, s.confidence[:1], s.points, s.logits)
    with pytest.raises(ValueError, match=r"expected levels \(1, c, h, w\) of the same dtype"):
        NATIVE.class_sums(s.features, known(s)[:1], C)
    with pytest.raises(ValueError, match=r"expected limits \(C, V\) and filled \(V\)"):
        NATIVE.draw_keys(thresholds(s.law, s.filled), s.filled[:2], 3, RING, queries=1, seed=0, step=0, stream=0)


def pairs(count: int, first: int = 0) -> None:
    """Random (seed, step), shape, classes, layout and bounds: the same census and the same keys from both."""
    g = torch.Generator().manual_seed(first)

    def whole(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=g))

    for n in range(count):
        b, h, w, classes = whole(1, 3), whole(1, 24), whole(1, 24), whole(1, 6)
        labels = torch.randint(-1, classes + 1, (b, h, w), generator=g)
        chance, sure = torch.rand(b, classes, h, w, generator=g), torch.rand(b, h, w, generator=g)
        if n % 2:
            labels, chance, sure = (t.transpose(-1, -2) for t in (labels, chance, sure))
        here = {"seed": whole(0, 2**62) * 3 + n % 4, "step": whole(0, 2**31), "stream": whole(0, 7) << 8}
        bounds = {"likely": whole(0, 9) / 10, "hard": whole(1, 10) / 10}
        sizes = {"fill": whole(1, 9), "queries": whole(1, 9)}
        found = [ops.census(chance, labels, sure, **bounds, **sizes, **here) for ops in (NATIVE, REFERENCE)]
        assert all(torch.equal(x, y) for x, y in zip(*found, strict=True)), (n, here)
        filled = torch.randint(0, 50, (classes,), generator=g)
        limits = thresholds(torch.rand(classes, classes, generator=g), filled)
        keys = [ops.draw_keys(limits, filled, 7, 50, queries=1 + n % 3, **here) for ops in (NATIVE, REFERENCE)]
        assert torch.equal(*keys), (n, here)


def test_draws_of_random_seeds_steps_and_shapes() -> None:
    pairs(500)


@pytest.mark.full
def test_draws_of_ten_thousand_random_seeds_steps_and_shapes() -> None:
    pairs(10_000, first=1)
