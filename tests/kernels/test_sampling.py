"""Draws: Philox to the bit, the right pixel of the right class, the right law, and nothing that may not be drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from mona_kernels.ops.sampling import Census, census, draw_keys, philox, philox_block, reference, thresholds

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
HERE = {"seed": 7, "step": 3, "stream": 256}


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


def counted(
    labels: Tensor, classes: int, *, fill: int = 1, queries: int = 1, easy: Tensor | None = None, **here: int
) -> Census:
    """The census of labels that are all sure, and hard but for those that are `easy`."""
    own = torch.full(labels.shape, 0.5) if easy is None else torch.where(easy, 0.9, 0.5)
    chance = own[:, None].expand(-1, classes, -1, -1)
    where = {**HERE, **here}
    sure = torch.ones(labels.shape)
    return census(chance, labels, sure, likely=0.7, hard=0.8, fill=fill, queries=queries, **where)


def pixels_of(labels: Tensor, classes: int, count: int, **here: int) -> Tensor:
    return counted(labels, classes, queries=count, **here).queries


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
    labels = label_map(*size, classes=classes + 1, seed=size[1])  # one id is beyond `classes`: never drawn
    generator = torch.Generator().manual_seed(size[2])
    chance = torch.rand(size[0], classes, *size[1:], generator=generator)
    sure = torch.rand(size, generator=generator)
    if turned:
        labels, chance, sure = (t.transpose(-1, -2) for t in (labels, chance, sure))
    limits = {"likely": 0.3, "hard": 0.6}
    found = census(chance, labels, sure, **limits, fill=5, queries=4, seed=seed, step=11, stream=256)
    rows = list(zip(labels.flatten().tolist(), sure.flatten().tolist(), strict=True))
    single = torch.tensor(list(limits.values())).tolist()  # the bounds in float32, as they are compared
    known = [c if 0 <= c < classes and s >= single[0] else -1 for c, s in rows]
    assert found.known.dtype == torch.int16 and found.known.flatten().tolist() == known
    flat = chance.permute(0, 2, 3, 1).reshape(-1, classes).tolist()
    for c in range(classes):
        own = [p for p, label in enumerate(known) if label == c]
        hard = [p for p in own if flat[p][c] < single[1]]
        assert (int(found.counts[c]), int(found.hard[c])) == (len(own), len(hard))
        words = [plain_philox((i, c, 11, 256), seed)[0] for i in range(min(5, len(own)))]
        assert found.keys[c].tolist() == ([own[u * len(own) // 2**32] for u in words] + [-1] * 5)[:5]
        words = [plain_philox((i, c, 11, 257), seed)[0] for i in range(4)]
        assert found.queries[c].tolist() == ([hard[u * len(hard) // 2**32] for u in words] if hard else [-1] * 4)


def test_bounds_are_compared_in_float32_and_belong_to_the_sure_and_the_easy() -> None:
    """0.7 and 0.97 are no floats: in double, float32(0.7) lies below 0.7 and would not count as sure."""
    just = torch.tensor([0.7, 0.97])
    below = torch.nextafter(just, torch.zeros(2))
    labels = torch.zeros(1, 2, 2, dtype=torch.int64)
    sure = torch.tensor([[[just[0], below[0]], [1, 1]]])
    chance = torch.tensor([[[[0, 0], [just[1], below[1]]]]])
    for probabilities in (chance, chance.double()):
        found = census(probabilities, labels, sure, likely=0.7, hard=0.97, fill=1, queries=50, **HERE)
        assert found.known.flatten().tolist() == [0, -1, 0, 0]
        assert found.counts.tolist() == [3] and found.hard.tolist() == [2] and set(found.queries[0].tolist()) == {0, 3}


def test_the_largest_word_takes_the_last_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = label_map(2, 9, 9, classes=2)
    full = torch.full((2, 1), 2**32 - 1)
    for words, which in ((full, -1), (torch.zeros_like(full), 0)):
        monkeypatch.setattr(reference, "_words", lambda *_, w=words: (w, w, w, w))
        chance, sure = torch.zeros(2, 2, 9, 9), torch.ones(2, 9, 9)
        found = reference.census(chance, labels, sure, likely=0.7, hard=0.8, fill=1, queries=1, **HERE)
        for pixels in (found.keys, found.queries):
            assert pixels[:, 0].tolist() == [int((labels.flatten() == c).nonzero()[which]) for c in range(2)]


def test_pixels_of_a_class_are_equally_likely() -> None:
    labels, easy = label_map(2, 6, 7, classes=3), label_map(2, 6, 7, classes=2, seed=5) > 0
    found = counted(labels, 3, queries=20_000, easy=easy)
    for c in range(3):
        may = (labels == c) & ~easy
        seen = torch.bincount(found.queries[c], minlength=labels.numel())[may.flatten()]
        assert len(seen) == found.hard[c] > 5 and seen.sum() == 20_000
        assert chisquare(seen).pvalue > UNLIKELY


def test_pixels_for_the_rings_are_equally_likely() -> None:
    """No more are drawn than there are, so one draw of each step is looked at."""
    labels = label_map(1, 5, 5, classes=2)
    first = torch.stack([counted(labels, 2, step=step).keys[:, 0] for step in range(3000)])
    for c in range(2):
        seen = torch.bincount(first[:, c], minlength=labels.numel())[(labels == c).flatten()]
        assert seen.sum() == 3000 and chisquare(seen).pvalue > UNLIKELY


def test_classes_draws_steps_and_streams_are_independent() -> None:
    """Pairs of draws over a 16 x 16 table; a shared counter would put everything on a line."""
    labels = torch.arange(2).repeat_interleave(16)[None, None]
    here = {"seed": 0, "step": 0, "stream": 0}
    first = pixels_of(labels, 2, 40_000, **here)
    others = [
        pixels_of(labels, 2, 40_000, **{**here, **changed})[0]
        for changed in ({"seed": 1}, {"seed": 1 << 32}, {"step": 1}, {"stream": 1 << 8})
    ]
    many = torch.zeros(1, 200, 200, dtype=torch.int64)  # as many pixels as draws, or keys would end with -1
    ring, asking = (t[0] * 16 // 40_000 for t in counted(many, 1, fill=40_000, queries=40_000, **here)[2::2])
    assert chisquare(torch.bincount(ring * 16 + asking, minlength=256)).pvalue > UNLIKELY
    for other in [first[1] - 16, first[0].roll(1), *others]:
        assert chisquare(torch.bincount(first[0] * 16 + other, minlength=256)).pvalue > UNLIKELY


def test_same_counters_same_draws() -> None:
    labels, limits = label_map(2, 16, 16, classes=4), thresholds(torch.full((4, 4), 0.25), torch.ones(4))
    filled = torch.tensor([3, 9, 2, 5])

    def all_draws(**here: int) -> list[Tensor]:
        found = counted(labels, 4, fill=99, queries=99, **here)
        return [found.keys, found.queries, draw_keys(limits, filled, 99, 9, queries=4, **{**HERE, **here})]

    once = all_draws()
    assert all(torch.equal(a, b) for a, b in zip(once, all_draws(), strict=True))
    for moved in ({"seed": 8}, {"step": 4}, {"stream": 512}):
        assert not any(torch.equal(a, b) for a, b in zip(once, all_draws(**moved), strict=True))


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
    drawn = reference.draw_keys(thresholds(law, filled), filled, 6, 10, queries=1, **HERE)
    assert drawn[0, 0].tolist() == [10, 14, 24, 26, 46, 48]
    nothing = thresholds(torch.zeros_like(law), filled)
    assert (reference.draw_keys(nothing, filled, 6, 10, queries=1, **HERE) == -1).all()


def test_keys_follow_the_law_and_slots_are_equally_likely() -> None:
    law = torch.tensor([[0, 0.6, 0.3, 0.1], [0.05, 0, 0.05, 0.9], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0]])
    filled = torch.tensor([7, 16, 3, 11])
    count = 40_000
    drawn = draw_keys(thresholds(law, filled), filled, count, 20, queries=1, **HERE)
    assert drawn.shape == (4, 1, count)
    negative, slot = drawn // 20, drawn % 20
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
    limits = thresholds(law, filled)
    drawn = draw_keys(limits, filled, 6, 2048, queries=3, **HERE)
    for c in range(5):
        for q in range(3):
            for n in range(6):
                first, second, *_ = plain_philox((q * 6 + n, c, HERE["step"], HERE["stream"] + 2), HERE["seed"])
                v = sum(t <= first for t in limits[c].tolist())
                assert int(drawn[c, q, n]) == (v * 2048 + second * int(filled[v]) // 2**32 if c != 3 else -1)
    assert torch.equal(draw_keys(limits, filled, 6, 2048, queries=1, **HERE), drawn[:, :1])
