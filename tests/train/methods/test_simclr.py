"""SimCLR: NT-Xent of both views worked out again, both with gradient, and a repeated slice is no negative."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.encoders import encodings_of
from helpers.steps import calls_of, stage_of, step_of, with_gradient
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.methods.registry import method_named, pretraining
from mona_train.methods.simclr import HEAD, Settings, SimCLR


def by_hand(rows: Tensor, partner: list[list[int]], temperature: float) -> Tensor:
    """-log of the share of each partner among all others, averaged over partners, then over rows."""
    z = F.normalize(rows, dim=1)
    e = (z @ z.T / temperature).exp()
    each = []
    for i, mine in enumerate(partner):
        others = e[i].sum() - e[i, i]
        each.append(torch.stack([-(e[i, j] / others).log() for j in mine]).mean())
    return torch.stack(each).mean()


@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_the_two_views_of_a_slice_are_the_positives(temperature: float) -> None:
    stage = stage_of(SimCLR, temperature=temperature)
    step = step_of(stage, size=32)
    heads = calls_of(step.student[HEAD])
    loss = stage.losses(step)["contrast"]
    rows = heads[0][1]
    assert len(heads) == 1 and rows.shape == (12, 128)
    torch.testing.assert_close(loss, by_hand(rows, [[(i + 6) % 12] for i in range(12)], temperature))


def test_both_views_go_through_the_students_encoder() -> None:
    stage = stage_of(SimCLR)
    views = stage.views(step_of(stage, size=32))
    step = step_of(stage, size=32)
    seen, heads = encodings_of(step.student["unet"]), calls_of(step.student[HEAD])
    stage.losses(step)
    assert torch.equal(seen[0][0], views.first) and torch.equal(seen[1][0], views.second)
    torch.testing.assert_close(heads[0][0], torch.cat([seen[0][1], seen[1][1]]))
    assert stage.averaged == () and not step.teacher


def test_a_slice_that_comes_twice_is_a_positive_of_itself() -> None:
    stage = stage_of(SimCLR)
    step = step_of(stage, labelled=2, unlabelled=2, size=32)
    step.unlabelled = replace(step.unlabelled, rows=torch.tensor([5, 5]))
    heads = calls_of(step.student[HEAD])
    loss = stage.losses(step)["contrast"]
    again = [[4], [5], [3, 6, 7], [2, 6, 7], [0], [1], [2, 3, 7], [2, 3, 6]]
    torch.testing.assert_close(loss, by_hand(heads[0][1], again, 0.5))


def test_the_gradient_comes_through_both_views() -> None:
    stage = stage_of(SimCLR)
    step = step_of(stage, size=32)
    views = stage.views(step)
    for view in views[:2]:
        view.requires_grad_()
    stage.contrast(step, views, step.student["unet"](views.first))["contrast"].backward()
    assert with_gradient(step.student) == {"unet", HEAD}
    assert all(bool(view.grad.any()) for view in views[:2])
    unet = step.student["unet"]
    assert all(p.grad is None for part in (unet.decoder, unet.head) for p in part.parameters())


def test_running_statistics_are_those_of_the_first_view() -> None:
    kept = []
    for weight in (0.0, 1.0):
        stage = stage_of(SimCLR, contrast_weight=weight)
        step = step_of(stage, size=32)
        torch.manual_seed(1)
        stage.losses(step)
        kept.append([m.running_mean.clone() for m in step.student["unet"].modules() if hasattr(m, "running_mean")])
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


def test_settings_are_those_of_the_method() -> None:
    s = Settings()
    assert (s.temperature, s.dim) == (0.5, 128)
    assert stage_of(SimCLR, dim=8).networks()[HEAD](torch.rand(2, 64)).shape == (2, 8)
    for wrong in ({"temperature": 0.0}, {"dim": 0}):
        with pytest.raises(InputError, match=f"simclr.{next(iter(wrong))}"):
            Settings(**wrong)
    assert method_named("simclr").stages == (SimCLR,) and pretraining()["simclr"] is SimCLR
