"""Relational similarity (method 3.3, 3.4): which way the KL runs, who gets a gradient, which crop meets which."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import unit

from mona_train.losses.relational import relational_kl


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
