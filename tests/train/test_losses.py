"""Losses against naive versions: which way the KL runs, who gets a gradient, and which crop meets which."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import blobs, seeded
from torch import Tensor

from mona_train.losses.neighbours import nearest_neighbours
from mona_train.losses.relational import relational_kl
from mona_train.losses.supervised import supervised
from mona_train.losses.windows import draw_windows
from mona_train.methods.bank import Bank


def unit(*shape: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=seeded(seed)), dim=-1)


def bank_of(rows: Tensor, tags: Tensor | None = None) -> Bank:
    bank = Bank(len(rows), tuple(rows.shape[1:]))
    bank.add(rows, None if tags is None else tags[:, None])
    return bank


# --- relational similarity (method 3.3, 3.4)


def test_the_kl_is_the_teachers_from_the_students() -> None:
    u, v, w = unit(6, 512, seed=1), unit(6, 512, seed=2), unit(36, 512)
    student, teacher = F.log_softmax(u @ w.T / 0.1, 1), F.log_softmax(v @ w.T / 0.01, 1)
    found = relational_kl(u, v, w)
    torch.testing.assert_close(found, F.kl_div(student, teacher, reduction="batchmean", log_target=True))
    other_way = F.kl_div(teacher, student, reduction="batchmean", log_target=True)
    assert abs(float(found - other_way)) > 0.1


def test_temperatures_go_to_their_own_network() -> None:
    u, v, w = unit(6, 64, seed=1), unit(6, 64, seed=2), unit(36, 64)
    student, teacher = F.softmax(u @ w.T / 0.3, 1), F.softmax(v @ w.T / 0.2, 1)
    expected = (teacher * (teacher / student).log()).sum(1).mean()
    torch.testing.assert_close(relational_kl(u, v, w, t_student=0.3, t_teacher=0.2), expected)


def test_zero_only_when_relations_and_temperatures_are_equal() -> None:
    u, w = unit(6, 512, seed=1), unit(36, 512)
    assert float(relational_kl(u, u, w, t_student=0.1, t_teacher=0.1)) == pytest.approx(0, abs=1e-6)
    assert relational_kl(u, u, w, t_student=0.1, t_teacher=0.01) > 0.1
    assert relational_kl(unit(6, 512, seed=2), u, w, t_student=0.1, t_teacher=0.1) > 0.01


@pytest.mark.parametrize("shape", [(512,), (36, 512)])
def test_only_the_student_gets_a_gradient(shape: tuple[int, ...]) -> None:
    u, v, w = (unit(n, *shape, seed=n).requires_grad_() for n in (5, 6, 36))
    relational_kl(u, v[:5], w).backward()
    assert u.grad.abs().sum() > 0
    assert v.grad is None and w.grad is None


def test_length_does_not_matter() -> None:
    u, v, w = unit(6, 64, seed=1), unit(6, 64, seed=2), unit(36, 64)
    torch.testing.assert_close(relational_kl(7 * u, 0.1 * v, w), relational_kl(u, v, w))


def test_a_crop_meets_the_banks_crops_of_its_own_index_alone() -> None:
    """Two crops, two slices in the bank.  At index 0 both networks are near slice 0, at index 1 near slice 1; had the
    crops of another index been met, student and teacher would be far apart."""
    e = torch.eye(4)
    bank = torch.stack([torch.stack([e[0], e[2]]), torch.stack([e[1], e[3]])])  # R n D
    student = torch.stack([e[0], e[3]])[None]  # B n D
    assert float(relational_kl(student, student, bank, t_student=0.05, t_teacher=0.05)) == pytest.approx(0, abs=1e-6)
    teacher = torch.stack([e[0], e[2]])[None]  # differs at index 1 only
    found = relational_kl(student, teacher, bank, t_student=0.05, t_teacher=0.05)
    assert float(found) == pytest.approx(20 / 2, rel=1e-4)  # index 0: 0; index 1: log e^20, by hand
    swapped = relational_kl(student, teacher, bank.flip(1), t_student=0.05, t_teacher=0.05)
    assert float(swapped) == pytest.approx(0, abs=1e-6)  # there, no crop is like any row: both networks shrug


def test_local_is_the_mean_of_global_over_indices() -> None:
    u, v, w = unit(5, 9, 64, seed=1), unit(5, 9, 64, seed=2), unit(36, 9, 64)
    expected = torch.stack([relational_kl(u[:, i], v[:, i], w[:, i]) for i in range(9)]).mean()
    torch.testing.assert_close(relational_kl(u, v, w), expected)
    assert abs(float(relational_kl(u, v, w.roll(1, 1)) - expected)) > 1e-3


def test_relations_are_float32_under_autocast() -> None:
    u, v, w = unit(6, 512, seed=1), unit(6, 512, seed=2), unit(36, 512)
    with torch.autocast("cpu", torch.bfloat16):
        inside = relational_kl(u, v, w)
    assert torch.equal(inside, relational_kl(u, v, w)) and inside.dtype == torch.float32


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"bank \(R, ..., D\), found \(6, 36, 8\), \(6, 36, 8\), \(36, 8\)"):
        relational_kl(unit(6, 36, 8), unit(6, 36, 8), unit(36, 8))


# --- nearest neighbours (method 4.5)


def naive_neighbours(u: Tensor, v: Tensor, z: Tensor, tags: list[int], bank_tags: list[int], k: int = 5) -> float:
    means = []
    for b in range(len(u)):
        others = [j for j in range(len(z)) if not (tags[b] == bank_tags[j] and tags[b] >= 0)]
        near = sorted(others, key=lambda j: float(2 - 2 * v[b] @ z[j]))[:k]
        if near:
            means.append(sum(float(2 - 2 * u[b] @ z[j]) for j in near) / len(near))
    return sum(means) / max(len(means), 1)


@pytest.mark.parametrize("slices", [1000, 12, 6])
def test_neighbours_are_the_teachers_and_the_distance_is_the_students(slices: int) -> None:
    u, v, z = unit(6, 16, seed=1), unit(6, 16, seed=2), unit(36, 16)
    tags = torch.randint(-1, slices, (6,), generator=seeded(3))
    bank_tags = torch.randint(-1, slices, (36,), generator=seeded(4))
    found = nearest_neighbours(u, v, bank_of(z, bank_tags), tags[:, None])
    assert float(found) == pytest.approx(naive_neighbours(u, v, z, tags.tolist(), bank_tags.tolist()), rel=1e-5)
    assert (
        abs(float(found) - naive_neighbours(v, u, z, tags.tolist(), bank_tags.tolist())) > 1e-3
    )  # swapped: difference 3
    untagged = nearest_neighbours(u, v, bank_of(z, bank_tags))
    assert float(untagged) == pytest.approx(naive_neighbours(u, v, z, [-1] * 6, [-1] * 36), rel=1e-5)


def test_neighbours_do_not_depend_on_the_length_of_an_embedding() -> None:
    u, v, bank = unit(6, 16, seed=1), unit(6, 16, seed=2), bank_of(unit(36, 16))
    torch.testing.assert_close(nearest_neighbours(7 * u, 0.1 * v, bank), nearest_neighbours(u, v, bank))


def test_the_same_slice_is_no_neighbour() -> None:
    e = torch.eye(8)
    bank = bank_of(e, torch.arange(8))
    v, u = e[:1], e[1:2]
    assert (
        float(nearest_neighbours(u, v, bank, torch.tensor([5])[:, None], k=1)) == 2
    )  # row 0 is nearest to v, and far from u
    found = nearest_neighbours(e[:1], v, bank, torch.tensor([0])[:, None], k=1)
    assert float(found) == 2  # row 0 would give 0
    unknown = nearest_neighbours(e[:1], v, bank_of(e), torch.tensor([-1])[:, None], k=1)
    assert float(unknown) == 0  # two unknowns are not the same slice


def test_fewer_rows_than_neighbours() -> None:
    """One image has two other rows, one has none, one all: each takes what there is."""
    z, u, v = unit(6, 16), unit(3, 16, seed=1).requires_grad_(), unit(3, 16, seed=2)
    bank_tags = torch.tensor([3, 3, 3, 3, 8, 9])
    found = nearest_neighbours(u, v, bank_of(z, bank_tags), torch.tensor([3, 3, 7])[:, None], k=5)
    expected = naive_neighbours(u.detach(), v, z, [3, 3, 7], bank_tags.tolist())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    none = nearest_neighbours(u[:1], v[:1], bank_of(z, torch.full((6,), 3)), torch.tensor([3])[:, None])
    assert float(none.detach()) == 0
    (found + none).backward()
    assert u.grad.isfinite().all() and (u.grad.abs().sum(1) > 0).all()
    assert float(nearest_neighbours(u, v, bank_of(z), k=50).detach()) == pytest.approx(
        naive_neighbours(u.detach(), v, z, [-1] * 3, [-1] * 6, k=6), rel=1e-5
    )
    alone = nearest_neighbours(u, v, bank_of(z, torch.full((6,), 3)), torch.tensor([3, 8, 8])[:, None])
    expected = naive_neighbours(u.detach(), v, z, [3, 8, 8], [3] * 6)
    assert float(alone.detach()) == pytest.approx(expected, rel=1e-5)  # the first is not averaged in as a zero


def test_neighbours_give_a_gradient_to_the_student_alone() -> None:
    u, v = unit(3, 64, seed=1).requires_grad_(), unit(3, 64, seed=2).requires_grad_()
    bank = bank_of(unit(36, 64))
    rows = bank.kept.requires_grad_()
    nearest_neighbours(u, v, bank).backward()
    assert (u.grad.abs().sum(1) > 0).all()
    assert v.grad is None
    assert rows.grad is None


def test_neighbours_are_float32_under_autocast_and_wait_for_the_bank() -> None:
    u, v, z = unit(6, 64, seed=1), unit(6, 64, seed=2), unit(36, 64)
    with torch.autocast("cpu", torch.bfloat16):
        inside = nearest_neighbours(u, v, bank_of(z))
    assert torch.equal(inside, nearest_neighbours(u, v, bank_of(z)))
    with pytest.raises(RuntimeError, match="check `full` first"):
        nearest_neighbours(u, v, Bank(36, (64,)))
    with pytest.raises(ValueError, match=r"tags \(B, n\), found \(6, 64\), \(6, 64\), \(5,\)"):
        nearest_neighbours(u, v, bank_of(z), torch.arange(5))


# --- windows (method 3.4)


def test_the_grid_spans_the_frame_row_by_row() -> None:
    w = draw_windows(seeded(), (256, 256), jitter=0)
    origins = [round(38.4 * k) for k in range(6)]
    assert origins == [0, 38, 77, 115, 154, 192]
    assert w.top.tolist() == [y for y in origins for _ in range(6)]
    assert w.left.tolist() == origins * 6
    assert w.side == (64, 64) and len(w) == 36


@pytest.mark.parametrize("size", [(256, 256), (128, 128), (64, 64), (48, 80)])
def test_jitter_keeps_windows_near_their_place_and_inside(size: tuple[int, int]) -> None:
    still = draw_windows(seeded(), size, jitter=0)
    drawn = [draw_windows(seeded(n), size) for n in range(200)]
    assert all(w.side == (size[0] // 4, size[1] // 4) for w in drawn)
    for axis, (name, extent) in enumerate(zip(("top", "left"), size, strict=True)):
        found = torch.stack([getattr(w, name) for w in drawn])  # draws, windows
        room = extent - extent // 4
        assert found.min() == 0 and found.max() == room
        off = found - getattr(still, name)
        assert off.abs().max() <= extent / 16 + 1  # both are rounded
        inner = getattr(still, name).clone().clamp(extent // 16, room - extent // 16) == getattr(still, name)
        assert off[:, inner].abs().max() >= extent / 16 - 1
        assert off[:, inner].float().mean().abs() < extent / 160  # around its place, not beside it
        assert (found[:, 0] != found[:, [1, 6][axis == 0]]).any()
    assert any((w.top[:6] != w.top[0]).any() for w in drawn)  # each window moves on its own


def test_windows_come_from_the_cpu_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    a, b, c = draw_windows(seeded(1), (64, 64)), draw_windows(seeded(1), (64, 64)), draw_windows(seeded(2), (64, 64))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a.top, b.top) and torch.equal(a.left, b.left) and not torch.equal(a.top, c.top)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_windows_are_the_slices_they_say(layout: torch.memory_format) -> None:
    size = (48, 80)
    maps = torch.randn(2, 3, *size).contiguous(memory_format=layout).requires_grad_()
    w = draw_windows(seeded(5), size, per_side=3)
    (h, k), places = w.side, list(zip(w.top.tolist(), w.left.tolist(), strict=True))
    assert (h, k) == (12, 20)
    expected = torch.stack([maps[:, :, y : y + h, x : x + k] for y, x in places], 1)
    found = w.of(maps)
    assert found.shape == (2, 9, 3, 12, 20) and torch.equal(found, expected)
    weight = torch.randn(found.shape, generator=seeded(6))
    (gradient,) = torch.autograd.grad((found * weight).sum(), maps)
    (wanted,) = torch.autograd.grad((expected * weight).sum(), maps)
    torch.testing.assert_close(gradient, wanted)


def test_windows_of_another_frame_are_refused() -> None:
    with pytest.raises(ValueError, match=r"maps \(B, C, 64, 64\), found \(2, 4, 32, 64\)"):
        draw_windows(seeded(), (64, 64)).of(torch.zeros(2, 4, 32, 64))
    with pytest.raises(ValueError, match="at least 4 x 4 pixels and one window"):
        draw_windows(seeded(), (64, 64), per_side=0)


# --- supervised (method 3.5)


def naive_supervised(logits: Tensor, labels: Tensor) -> float:
    """Pixel by pixel, in float64."""
    p = logits.double().softmax(1)
    count, classes, height, width = p.shape
    pixels = [(b, y, x) for b in range(count) for y in range(height) for x in range(width)]
    entropy = -sum(float(p[b, labels[b, y, x], y, x].log()) for b, y, x in pixels) / len(pixels)
    terms = []
    for c in range(classes):
        both = sum(float(p[b, c, y, x]) for b, y, x in pixels if labels[b, y, x] == c)
        squares = sum(float(p[b, c, y, x]) ** 2 + float(labels[b, y, x] == c) for b, y, x in pixels)
        terms.append(1 - (2 * both + 1e-5) / (squares + 1e-5))
    return entropy + sum(terms) / classes


@pytest.mark.parametrize("missing", [None, 0, 3])
def test_supervised_is_cross_entropy_and_dice_with_squares_over_the_batch(missing: int | None) -> None:
    logits, labels = 2 * torch.randn(3, 4, 5, 6, generator=seeded(1)), blobs(3, (5, 6))
    if missing is not None:
        labels[labels == missing] = 1
    assert float(supervised(logits, labels)) == pytest.approx(naive_supervised(logits, labels), rel=1e-5)


def test_a_perfect_prediction_costs_nothing_also_where_a_class_is_absent() -> None:
    labels = blobs(2, (16, 16)).clamp(max=2)
    logits = 50 * F.one_hot(labels, 4).permute(0, 3, 1, 2).float()
    assert float(supervised(logits, labels)) == pytest.approx(0, abs=1e-4)


def test_supervised_is_float32_under_autocast() -> None:
    labels = blobs(2, (16, 16))
    logits = torch.randn(2, 4, 16, 16, generator=seeded(1)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = supervised(logits, labels)
    assert inside.dtype == torch.float32 and torch.equal(inside, supervised(logits.float(), labels))


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels \(B, H, W\), found \(2, 4, 8, 8\) and \(2, 1, 8, 8\)"):
        supervised(torch.zeros(2, 4, 8, 8), torch.zeros(2, 1, 8, 8, dtype=torch.int64))


def test_an_image_that_shows_two_slices_has_neither_for_a_neighbour() -> None:
    """A CutMixed image is half its partner: rows of either slice would be the image itself."""
    e = torch.eye(4)
    bank = Bank(4, (4,), slices=2)
    bank.add(e, torch.tensor([[1, 2], [3, 9], [4, 5], [6, 7]]))
    v = unit(1, 4, seed=1).abs() + torch.tensor([[3.0, 2.0, 1.0, 0.0]])  # nearest first: rows 0, 1, 2, 3
    for shown, nearest in (([8, 8], 0), ([2, 8], 1), ([2, 3], 2), ([9, 1], 2)):
        found = nearest_neighbours(e[nearest : nearest + 1], v, bank, torch.tensor([shown]), k=1)
        assert float(found) == pytest.approx(0, abs=1e-6)
