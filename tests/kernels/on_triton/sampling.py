"""The reference's very pixels and keys."""

import pytest
import torch
from helpers.triton_device import here, layouts

from mona_kernels.ops.sampling import reference, triton

LIMITS = {"likely": 0.7, "hard": 0.6}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 pixels, so that small maps have many of them, and draws in few programs: the interpreter is slow."""
    monkeypatch.setattr(triton, "PIXELS", 64)
    monkeypatch.setattr(triton, "STRIP", 32)
    monkeypatch.setattr(triton, "DRAWS", 32)


def batch(
    generator: torch.Generator, b: int, c: int, h: int, w: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    probabilities = torch.randn(b, c, h, w, generator=generator).mul(3).softmax(1).to(dtype)
    labels = torch.randint(-1, c + 2, (b, h, w), generator=generator)
    return [probabilities, labels, torch.rand(b, h, w, generator=generator).to(dtype)]


def assert_same(tensors: list[torch.Tensor], **draw: int) -> reference.Census:
    ours, theirs = (f(*here(*tensors), **LIMITS, **draw) for f in (triton.census, reference.census))
    for name, found, expected in zip(theirs._fields, ours, theirs, strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected), (name, draw)
    return ours


def assert_same_keys(generator: torch.Generator, classes: int, ring: int, **draw: int) -> None:
    law = torch.rand(classes, classes, generator=generator) * (torch.rand(classes, classes, generator=generator) < 0.7)
    filled = torch.randint(0, ring + 1, (classes,), generator=generator)
    limits, filled = here(reference.thresholds(law, filled), filled)
    ours, theirs = (f(limits, filled, 5, ring, queries=3, **draw) for f in (triton.draw_keys, reference.draw_keys))
    assert ours.dtype == theirs.dtype and torch.equal(ours, theirs), draw


@pytest.mark.parametrize("number", [*range(12), *(pytest.param(n, marks=pytest.mark.full) for n in range(12, 300))])
def test_same_draws_for_any_seed_step_and_shape(number: int) -> None:
    generator = torch.Generator().manual_seed(number)

    def below(n: int) -> int:
        return int(torch.randint(0, n, (), generator=generator))

    draw = {"seed": below(1 << 62) * 4 + below(4), "step": below(1 << 32), "stream": below(1 << 20) << 8}
    shape = 1 + below(2), 1 + below(4), 1 + below(15), 1 + below(15)
    assert_same(batch(generator, *shape), fill=1 + below(9), queries=1 + below(40), **draw)
    assert_same_keys(generator, 1 + below(5), 1 + below(2048), **draw)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_compared_in_float32(dtype: torch.dtype) -> None:
    """Confidences and probabilities on both sides of the limits, and the half numbers nearest to them."""
    tensors = batch(torch.Generator().manual_seed(0), 1, 3, 9, 11, dtype)
    for tensor, limit in zip(tensors[::2], LIMITS.values(), strict=True):
        tensor.view(-1)[::3] = torch.tensor(limit, dtype=dtype)
    assert_same(tensors, fill=4, queries=7, seed=1, step=2, stream=0)


def test_any_layout() -> None:
    probabilities, labels, confidence = batch(torch.Generator().manual_seed(1), 2, 3, 10, 9)
    for name, maps in layouts(probabilities).items():
        assert maps.stride() != probabilities.stride() or name == "contiguous"
        assert_same([maps, labels.mT.contiguous().mT, confidence], fill=3, queries=5, seed=1, step=1, stream=256)


def test_one_pixel_no_pixel_no_draw_and_256_classes() -> None:
    one = [torch.full((1, 2, 1, 1), 0.5), torch.ones(1, 1, 1, dtype=torch.int64), torch.ones(1, 1, 1)]
    found = assert_same(one, fill=3, queries=3, seed=0, step=0, stream=0)
    assert found.keys.tolist() == [[-1, -1, -1], [0, -1, -1]] and found.queries.tolist() == [[-1] * 3, [0] * 3]
    unsure = [one[0], one[1], torch.zeros(1, 1, 1)]
    assert (assert_same(unsure, fill=0, queries=2, seed=0, step=0, stream=0).queries == -1).all()
    many = batch(torch.Generator().manual_seed(2), 1, 256, 6, 7)
    many[1][0, 0] = 255
    found = triton.census(*here(*many), **LIMITS, fill=0, queries=0, seed=0, step=0, stream=0)
    expected = reference.census(*here(*many), **LIMITS, fill=0, queries=0, seed=0, step=0, stream=0)
    assert torch.equal(found.counts, expected.counts) and torch.equal(found.hard, expected.hard)
