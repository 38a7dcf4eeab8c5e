"""Relational similarity (method 3.3, 3.4): the student learns the teacher's similarities to the rows of the bank."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def relational_kl(
    student: Tensor, teacher: Tensor, bank: Tensor, *, t_student: float = 0.1, t_teacher: float = 0.01
) -> Tensor:
    """KL(teacher || student), averaged over rows; only `student` gets a gradient.

    Global: u, v (B, D) against rows (R, D).  Local: u, v (B, n, D) against (R, n, D), crop i only with the bank's
    crops of index i: B n R logits.  The paper writes the KL in the other direction and of logarithms; ISD, where
    this loss comes from, and the published code have the teacher as target.
    """
    if student.shape != teacher.shape or student.shape[1:] != bank.shape[1:]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (student, teacher, bank))
        raise ValueError(f"expected student and teacher (B, ..., D) and a bank (R, ..., D), found {shapes}")
    with torch.autocast(student.device.type, enabled=False):  # a cosine in bfloat16 is off by 0.4 once divided by 0.01
        log_student = _log_similarity(student, bank, t_student)
        log_teacher = _log_similarity(teacher.detach(), bank, t_teacher)
        return (log_teacher.exp() * (log_teacher - log_student)).sum(-1).mean()


def _log_similarity(rows: Tensor, bank: Tensor, temperature: float) -> Tensor:
    """Log-softmax over the bank of cosines / temperature (B, ..., R); the bank's rows have length 1 already."""
    cosines = torch.einsum("b...d,r...d->b...r", F.normalize(rows.float(), dim=-1), bank.detach().float())
    return F.log_softmax(cosines / temperature, dim=-1)
