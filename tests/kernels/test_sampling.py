"""Draws: Philox to the bit, the right pixel of the right class, the right law, and nothing that may not be drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from mona_kernels.ops.sampling import draw_keys, philox, philox_block, reference, sample_pixels, thresholds

# Random123's kat_vectors: counter, key, block.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
UNLIKELY = 1e-4  # of a fair sampler failing a chi-square test; seeds are fixed, so it is luck once, not in every run
HERE = {"seed": 7, "step": 3, "stream": 1}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def plain_philox(counter: tuple[int, ...], seed: int) -> list[int]:
    """With Python's unbounded integers."""
    c, (k0, k1) = list(counter), (seed % 2**32, (seed >> 32) % 2**32)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b % 2**32, (a >> 32) ^ c[3] ^ k1, a % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


def label_map(*size: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randint(-1, classes, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN)
def test_published_answers(counter: tuple[int, ...], key: tuple[int, int], block: tuple[int, ...]) -> None:
    words = philox_block(tuple(torch.tensor([n]) for n in counter), key)  # type: ignore[arg-type]
    assert tuple(int(w) for w in words) == block
    index, cls, step, stream = counter
    assert int(philox(torch.tensor(index), torch.tensor(cls), step, stream, key[1] << 32 | key[0])) == block[0]
    assert tuple(plain_philox(counter, key[1] << 32 | key[0])) == block


@given(st.tuples(*[st.integers(0, 2**32 - 1)] * 4), st.integers(0, 2**64 - 1))
@settings(max_examples=60, deadline=None)
def test_any_counter_and_key(counter: tuple[int, int, int, int], seed: int) -> None:
    index, cls, step, stream = counter
    assert int(philox(torch.tensor(index), torch.tensor(cls), step, stream, seed)) == plain_philox(counter, seed)[0]


@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)),
    classes=st.integers(1, 8),
    seed=st.integers(0, 2**63),
    turned=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_the_pixel_is_the_rule_s(size: tuple[int, int, int], classes: int, seed: int, turned: bool) -> None:
    eligible = label_map(*size, classes=classes + 1, seed=size[1])  # one id is beyond `classes`: never drawn
    if turned:
        eligible = eligible.transpose(1, 2)
    pixels, counts = sample_pixels(eligible, classes, 5, seed=seed, step=11, stream=258)
    flat = eligible.flatten().tolist()
    for c in range(classes):
        own = [p for p, label in enumerate(flat) if label == c]
        draws = [plain_philox((i, c, 11, 258), seed)[0] for i in range(5)]
        assert int(counts[c]) == len(own)
        assert pixels[c].tolist() == ([own[u * len(own) // 2**32] for u in draws] if own else [-1] * 5)


def test_the_largest_word_takes_the_last_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    eligible = label_map(2, 9, 9, classes=2)
    full = torch.full((2, 1), 2**32 - 1)
    for words, which in ((full, -1), (torch.zeros_like(full), 0)):
        monkeypatch.setattr(reference, "_words", lambda *_, w=words: (w, w, w, w))
        pixels, _ = sample_pixels(eligible, 2, 1, **HERE)
        assert pixels[:, 0].tolist() == [int((eligible.flatten() == c).nonzero()[which]) for c in range(2)]


def test_pixels_of_a_class_are_equally_likely() -> None:
    eligible = label_map(2, 6, 7, classes=3)
    pixels, counts = sample_pixels(eligible, 3, 20_000, **HERE)
    for c in range(3):
        seen = torch.bincount(pixels[c], minlength=eligible.numel())[eligible.flatten() == c]
        assert len(seen) == counts[c] and seen.sum() == 20_000
        assert chisquare(seen).pvalue > UNLIKELY


def test_classes_draws_steps_and_streams_are_independent() -> None:
    """Pairs of draws over a 16 x 16 table; a shared counter would put everything on a line."""
    eligible = torch.arange(2).repeat_interleave(16)[None, None]
    here = {"seed": 0, "step": 0, "stream": 0}
    first = sample_pixels(eligible, 2, 40_000, **here)[0]
    others = [
        sample_pixels(eligible, 2, 40_000, **{**here, **changed})[0][0]
        for changed in ({"seed": 1}, {"seed": 1 << 32}, {"step": 1}, {"stream": 1}, {"stream": 1 << 8})
    ]
    for other in [first[1] - 16, first[0].roll(1), *others]:
        assert chisquare(torch.bincount(first[0] * 16 + other, minlength=256)).pvalue > UNLIKELY


def test_same_counters_same_draws() -> None:
    eligible, law, filled = label_map(2, 16, 16, classes=4), torch.full((4, 4), 0.25), torch.tensor([3, 9, 2, 5])
    assert torch.equal(sample_pixels(eligible, 4, 99, **HERE)[0], sample_pixels(eligible, 4, 99, **HERE)[0])
    a, b = (torch.stack(draw_keys(law, filled, 99, **HERE, queries=4)) for _ in range(2))
    assert torch.equal(a, b)
    for name in HERE:
        moved = {**HERE, name: HERE[name] + 1}
        assert not torch.equal(sample_pixels(eligible, 4, 99, **moved)[0], sample_pixels(eligible, 4, 99, **HERE)[0])
        assert not torch.equal(torch.stack(draw_keys(law, filled, 99, **moved, queries=4)), a)


def test_thresholds_by_hand() -> None:
    law = torch.tensor([[0, 0.5, 0.25, 0.25], [0.5, 0, 0.5, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
    whole, half, quarter = 2**32, 2**31, 2**30
    everything = torch.ones(4, dtype=torch.int64)
    assert thresholds(law, everything).tolist() == [
        [0, half, 3 * quarter, whole],
        [half, half, whole, whole],
        [0, 0, 0, whole],
        [0, 0, 0, 0],
    ]
    without = thresholds(law, torch.tensor([1, 1, 1, 0])).tolist()  # ring 3 is empty: what it had is shared out
    assert without[0] == [0, int(whole * (0.5 / 0.75)), whole, whole]
    assert without[1:] == [[half, half, whole, whole], [0, 0, 0, 0], [0, 0, 0, 0]]


@given(
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-30, 1.0)), min_size=2, max_size=8),
    filled=st.lists(st.integers(0, 5), min_size=8, max_size=8),
    single=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_no_word_falls_through_and_nothing_empty_is_reached(
    weights: list[float], filled: list[int], single: bool
) -> None:
    """At every threshold, one below it, and both ends of the range."""
    law = torch.tensor([weights], dtype=torch.float32 if single else torch.float64)
    ring = torch.tensor(filled[: len(weights)])
    limits = thresholds(law, ring)[0].tolist()
    reachable = [v for v, w in enumerate(law[0].tolist()) if w > 0 and ring[v] > 0]
    assert limits == sorted(limits)
    for word in {0, 2**32 - 1, *limits, *(t - 1 for t in limits)}:
        if 0 <= word < 2**32:
            drawn = sum(t <= word for t in limits)
            assert drawn in reachable if reachable else drawn == len(weights)


def test_a_word_on_a_threshold_belongs_to_the_next_class(monkeypatch: pytest.MonkeyPatch) -> None:
    law, filled = torch.tensor([[0, 0.5, 0.25, 0, 0.25, 0]]), torch.tensor([9, 9, 9, 9, 9, 0])
    words = torch.tensor([[0, 2**31 - 1, 2**31, 3 * 2**30 - 1, 3 * 2**30, 2**32 - 1]])
    monkeypatch.setattr(reference, "_words", lambda *_: (words, words, words, words))
    negative, slot = draw_keys(law, filled, 6, **HERE)
    assert negative[0, 0].tolist() == [1, 1, 2, 2, 4, 4]
    assert slot[0, 0].tolist() == [0, 4, 4, 6, 6, 8]
    assert (torch.stack(draw_keys(torch.zeros_like(law), filled, 6, **HERE)) == -1).all()


def test_keys_follow_the_law_and_slots_are_equally_likely() -> None:
    law = torch.tensor([[0, 0.6, 0.3, 0.1], [0.05, 0, 0.05, 0.9], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0]])
    filled = torch.tensor([7, 16, 3, 11])
    count = 40_000
    negative, slot = draw_keys(law, filled, count, **HERE)
    assert negative.shape == slot.shape == (4, 1, count)
    for c in range(4):
        seen = torch.bincount(negative[c, 0], minlength=4)
        likely = law[c] > 0
        assert not seen[~likely].any()
        assert chisquare(seen[likely], law[c, likely].double() / law[c].double().sum() * count).pvalue > UNLIKELY
        for v in likely.nonzero()[:, 0].tolist():
            slots = torch.bincount(slot[c, 0][negative[c, 0] == v], minlength=int(filled[v]))
            assert len(slots) == filled[v] and chisquare(slots).pvalue > UNLIKELY


def test_keys_are_the_rule_s_and_a_shared_set_is_that_of_query_0() -> None:
    generator = torch.Generator().manual_seed(0)
    law = torch.rand(5, 5, generator=generator, dtype=torch.float64)
    law.fill_diagonal_(0)
    law[3] = 0
    filled = torch.tensor([4, 0, 2048, 1, 17])
    limits = thresholds(law, filled).tolist()
    negative, slot = draw_keys(law, filled, 6, **HERE, queries=3)
    for c in range(5):
        for q in range(3):
            for n in range(6):
                first, second, *_ = plain_philox((q * 6 + n, c, HERE["step"], HERE["stream"]), HERE["seed"])
                v = sum(t <= first for t in limits[c])
                expected = (v, second * int(filled[v]) // 2**32) if c != 3 else (-1, -1)
                assert (int(negative[c, q, n]), int(slot[c, q, n])) == expected
    shared = draw_keys(law, filled, 6, **HERE)
    assert torch.equal(shared[0], negative[:, :1]) and torch.equal(shared[1], slot[:, :1])
