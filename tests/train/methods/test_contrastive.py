"""What contrastive stages share: two views of one picture, labels with the first, whose slice a row is of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.encoders import encodings_of
from helpers.steps import CLASSES, STILL, calls_of, seeded, stage_of, step_of
from helpers.told import quarter_turn, turned
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.augment import Fitted, published
from mona_train.losses.supervised import supervised
from mona_train.methods import contrastive
from mona_train.methods.acr import ACR
from mona_train.methods.acr_batch import LABELLED_TAGS
from mona_train.methods.byol import BYOL
from mona_train.methods.contrastive import resized_crop, same_slice, slices_of
from mona_train.methods.isd import ISD
from mona_train.methods.knn_moco import KNNMoCo
from mona_train.methods.moco import MoCo
from mona_train.methods.simclr import SimCLR

ALL = (MoCo, KNNMoCo, SimCLR, BYOL, ISD)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Views are a quarter turn, exact in every pixel."""
    monkeypatch.setattr(published, "weak", quarter_turn)
    monkeypatch.setattr(contrastive, "STRENGTH", STILL)
    return monkeypatch


def test_both_views_show_the_slices_of_the_step_in_order(still: pytest.MonkeyPatch) -> None:
    stage = stage_of(MoCo, crop=1.0)
    step = step_of(stage, labelled=2, unlabelled=3, size=32)
    views = stage.views(step)
    images = turned(torch.cat([step.labelled.images, step.unlabelled.images]))
    torch.testing.assert_close(views.first, images)
    torch.testing.assert_close(views.second, images, atol=1e-5, rtol=0)
    assert torch.equal(views.labels, turned(step.labelled.labels))


def test_the_second_view_alone_is_cropped(still: pytest.MonkeyPatch) -> None:
    """On a ramp from 0 to 1 a crop of a tenth to all of the area shows a part of the range."""
    stage = stage_of(MoCo, crop=0.1)
    step = step_of(stage, size=32)
    ramp = torch.linspace(0, 1, 32).expand(3, 1, 32, 32)
    step.labelled.images.copy_(ramp), step.unlabelled.images.copy_(ramp)
    views = stage.views(step)
    first, second = (view.amax((1, 2, 3)) - view.amin((1, 2, 3)) for view in views[:2])
    torch.testing.assert_close(first, torch.ones(6))
    assert bool((second < 0.999).all()) and bool((second > 0.3).all()) and len(set(second.tolist())) == 6


def test_views_are_drawn_apart_and_look_different() -> None:
    stage = stage_of(MoCo)
    strengths: list[Any] = []

    class Watched(Fitted):
        def appearance(self, generator: Any, images: Tensor, strength: Any) -> Tensor:
            strengths.append(strength)
            return images

    step = replace(step_of(stage, size=48), window=(32, 32), augment=Watched())
    views = stage.views(step)
    assert views.first.shape == views.second.shape == (6, 1, 32, 32)
    assert all((a - b).abs().mean() > 0.01 for a, b in zip(views.first, views.second, strict=True))
    assert strengths == [contrastive.STRENGTH] * 2
    s = contrastive.STRENGTH
    assert (s.brightness, s.contrast, s.colour_probability) == ((0.6, 1.4), (0.6, 1.4), 0.8)  # MoCo v2
    assert (s.blur, s.blur_probability, s.gamma_probability) == ((0.1, 2.0), 0.5, 0)


def test_a_crop_lies_in_the_frame_and_has_the_area_that_was_drawn() -> None:
    points = resized_crop(seeded(), 400, 0.2).points((8, 8))
    low, high = points.amin((2, 3)), points.amax((2, 3))
    sides = (high - low) / 2
    area = sides.prod(1)
    torch.testing.assert_close(sides[:, 0], sides[:, 1])
    assert float(points.abs().max()) <= 1 + 1e-6 and float(area.min()) >= 0.2
    assert float(area.min()) < 0.22 and float(area.max()) > 0.98 and float(area.mean()) == pytest.approx(0.6, abs=0.03)
    assert bool((low < -0.99).any()) and bool((high > 0.99).any())


@pytest.mark.parametrize("kind", ALL)
def test_labelled_slices_are_pasted_alike_in_both_views(still: pytest.MonkeyPatch, kind: Any) -> None:
    still.setattr(published, "jitter", lambda _, images, __: images)
    stage = stage_of(kind, copy_paste=True, **({} if kind is ISD else {"crop": 1.0}))
    step = step_of(stage, labelled=8, unlabelled=2, size=32)
    numbers = torch.arange(10)[:, None, None, None] / 10
    step.labelled.images.copy_(numbers[:8].expand(8, 1, 32, 32))
    step.labelled.labels.copy_(torch.arange(8)[:, None, None] % CLASSES)
    step.unlabelled.images.copy_(numbers[8:].expand(2, 1, 32, 32))
    views = stage.views(step)
    torch.testing.assert_close(views.first, views.second, atol=1e-5, rtol=0)
    assert torch.equal(views.labels, (10 * views.first[:8, 0]).round().long() % CLASSES)
    foreign = (views.first != numbers).flatten(1).any(1)
    assert 1 < int(foreign[:8].sum()) < 8 and not foreign[8:].any()
    assert torch.equal(step.labelled.images, numbers[:8].expand(8, 1, 32, 32))  # the cached slices stay as they are


@pytest.mark.parametrize("kind", ALL)
def test_labels_are_fitted_on_the_first_view(kind: Any) -> None:
    stage = stage_of(kind, supervised_scale=0.7)
    views = stage.views(step_of(stage, size=32))
    step = step_of(stage, size=32)
    student = calls_of(step.student["unet"])
    loss = stage.losses(step)["supervised"]
    assert torch.equal(student[0][0], views.first) and len(student) == 1
    torch.testing.assert_close(loss, 0.7 * supervised(student[0][1].logits[:3], views.labels))
    assert not stage.nesterov and stage.weights(step)["contrast"] == 1.0


@pytest.mark.parametrize("kind", ALL)
def test_a_contrast_of_weight_0_costs_nothing(kind: Any) -> None:
    stage = stage_of(kind, contrast_weight=0.0)
    step = step_of(stage, size=32)
    encoded = [encodings_of(part["unet"]) for part in (step.student, step.teacher) if "unet" in part]
    assert list(stage.losses(step)) == ["supervised"]
    assert [len(seen) for seen in encoded] == [1, 0][: len(encoded)]
    assert stage.weights(step)["contrast"] == 0


def test_slices_are_known_by_stream_and_row() -> None:
    step = step_of(stage_of(MoCo), labelled=2, unlabelled=2, size=16)
    assert slices_of(step).tolist() == [[-1], [-1], [0], [1]]
    step.labelled = replace(step.labelled, rows=torch.tensor([1, 0]))
    assert slices_of(step).tolist() == [[LABELLED_TAGS + 1], [LABELLED_TAGS], [0], [1]]
    assert slices_of(replace(step, unlabelled=None)).tolist() == [[LABELLED_TAGS + 1], [LABELLED_TAGS]]
    mine, theirs = torch.tensor([[-1], [3]]), torch.tensor([[3], [-1], [4]])
    assert same_slice(mine, theirs).tolist() == [[False] * 3, [True, False, False]]


def test_heads_are_handed_over_to_fine_tuning_only_where_it_trains_them_further() -> None:
    fine = stage_of(ACR).networks()
    for kind in ALL:
        networks = stage_of(kind).networks()
        shared = {"unet", "projector", "predictor"} if kind is ISD else {"unet"}
        assert set(networks) & set(fine) == shared
        for name in shared:
            shapes = [{key: t.shape for key, t in of[name].state_dict().items()} for of in (networks, fine)]
            assert shapes[0] == shapes[1]


def test_settings_have_limits() -> None:
    for wrong in ({"crop": 0.0}, {"crop": 1.1}, {"contrast_weight": -1.0}, {"supervised_scale": -1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            contrastive.Settings(**wrong)
