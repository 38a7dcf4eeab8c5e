"""kNN-MoCo: MoCo's loss, and neighbours found with the bottleneck among rows that are aligned with the queue's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.encoders import encodings_of
from helpers.steps import calls_of, following, stage_of, step_of, unit, with_gradient

from mona_infer.errors import InputError
from mona_train.methods.base import Step
from mona_train.methods.knn_moco import KNNMoCo, Settings
from mona_train.methods.moco import HEAD, MoCo, Rows
from mona_train.methods.registry import method_named, pretraining


def filled(stage: MoCo) -> Step:
    step = step_of(stage, size=32)
    for n in range(2):
        assert list(stage.losses(following(step, n))) == ["supervised"]
    with torch.no_grad():
        for p in step.teacher.parameters():
            p.add_(0.05 * torch.randn_like(p))
    return following(step, 2)


@pytest.mark.parametrize("k", [2, 5])
def test_neighbours_are_those_of_the_bottleneck_and_judged_by_the_head(k: int) -> None:
    stage = stage_of(KNNMoCo, queue=12, neighbours=k)
    step = filled(stage)
    queue, places = stage.queue.rows.clone(), stage.places.rows.clone()
    assert places.shape == (12, 64)
    stage.queue.tags[:], stage.places.tags[:] = -1, -1
    heads, student = calls_of(step.student[HEAD]), encodings_of(step.student["unet"])
    losses = stage.losses(step)
    q, seen = F.normalize(heads[0][1], dim=1), F.normalize(student[0][1].detach(), dim=1)
    log_p = (q @ queue.T / 0.2).log_softmax(1)
    expected = []
    for b in range(6):
        nearest = sorted(range(12), key=lambda r: -float(seen[b] @ places[r]))[:k]
        expected.append(-log_p[b, nearest].mean())
    torch.testing.assert_close(losses["neighbours"], torch.stack(expected).mean())


def test_the_rest_is_moco() -> None:
    found = []
    for kind in (MoCo, KNNMoCo):
        stage = stage_of(kind, queue=12)
        found.append(stage.losses(filled(stage))["contrast"])
    assert torch.equal(*found)


def test_both_queues_have_the_same_slices_row_by_row() -> None:
    stage = stage_of(KNNMoCo, queue=10)  # not a multiple of the batch
    step = step_of(stage, size=32)
    head, unet = calls_of(step.teacher[HEAD]), encodings_of(step.teacher["unet"])
    for n in range(3):
        stage.losses(following(step, n))
    projected = torch.cat([out for _, out in head])
    pooled = torch.cat([bottleneck for _, bottleneck in unet])
    for slot, row in enumerate([10, 11, 12, 13, 14, 15, 16, 17, 8, 9]):
        torch.testing.assert_close(stage.queue.rows[slot], F.normalize(projected[row], dim=0))
        torch.testing.assert_close(stage.places.rows[slot], F.normalize(pooled[row], dim=0))
    assert torch.equal(stage.queue.tags, stage.places.tags)


def test_a_slice_is_not_its_own_neighbour() -> None:
    """All rows of the queue but one show the query's slice: that one is the neighbour, and alone in the softmax."""
    stage = stage_of(KNNMoCo, queue=12)
    filled(stage)
    rows = Rows(unit(4, 128), unit(4, 128, seed=1), unit(4, 64), unit(4, 64, seed=1), torch.full((4, 1), 7))
    stage.queue.tags[:] = 7
    stage.queue.tags[4] = 8
    assert float(stage.compare(rows)["neighbours"]) == 0
    stage.queue.tags[:] = 8
    assert float(stage.compare(rows)["neighbours"]) > 0.1


def test_the_gradient_reaches_the_students_encoder_and_head_alone() -> None:
    stage = stage_of(KNNMoCo, queue=12)
    step = filled(stage)
    step.teacher.requires_grad_(True)
    stage.losses(step)["neighbours"].backward()
    assert with_gradient(step.student) == {"unet", HEAD} and not with_gradient(step.teacher)
    unet = step.student["unet"]
    assert all(p.grad is None for part in (unet.decoder, unet.head) for p in part.parameters())


def test_settings_and_weights() -> None:
    s = Settings()
    assert (s.neighbours, s.neighbours_weight, s.queue, s.temperature) == (5, 0.4, 1200, 0.2)
    stage = stage_of(KNNMoCo, queue=6, contrast_weight=0.5, neighbours_weight=0.3)
    assert stage.weights(step_of(stage, size=16)) == {"contrast": 0.5, "neighbours": 0.3}
    for wrong in ({"neighbours": 0}, {"neighbours_weight": -1.0}):
        with pytest.raises(InputError, match=f"knn-moco.{next(iter(wrong))}"):
            Settings(**wrong)
    assert method_named("knn-moco").stages == (KNNMoCo,) and pretraining()["knn-moco"] is KNNMoCo
