"""Supervised training, and the views that all stages share: image, label and confidence move together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import (
    STILL,
    blobs,
    calls_of,
    painted,
    seeded,
    stage_of,
    step_of,
    weights_at,
    with_gradient,
    within,
    without_dropout,
)
from helpers.told import quarter_turn, turned
from torch import Generator, Tensor

from mona_train.augment import (
    ACR,
    PUBLISHED,
    Augmentation,
    Fitted,
    Geometry,
    Strength,
    View,
    diffeo,
    matrices,
    published,
    weak,
)
from mona_train.losses.supervised import supervised
from mona_train.methods import views
from mona_train.methods.supervised import Supervised
from mona_train.methods.views import mixed_view, weak_batch

SIZE = (64, 64)


def misplaced(images: Tensor, labels: Tensor, confidence: Tensor | None = None) -> float:
    """Share of pixels well inside a class whose intensity, or confidence, is not that of their label."""
    sound = within(labels)
    sound[:, :2], sound[:, -2:], sound[:, :, :2], sound[:, :, -2:] = False, False, False, False
    wrong = (images[:, 0] * 3 - labels).abs() > 0.5
    if confidence is not None:
        wrong |= (confidence * 3 - labels).abs() > 0.5
    assert sound.float().mean() > 0.3
    return float((wrong & sound).float().sum() / sound.sum())


def strong_view(
    generator: Generator, *maps: Tensor, after: Geometry | None = None, ignore: int = 0, strength: Strength = ACR
) -> View:
    view = mixed_view(generator, *maps, after=after, ignore=ignore)
    return view._replace(images=PUBLISHED.appearance(generator, view.images, strength))


def warping(seed: int) -> bool:
    """Whether the coin of that seed says yes to the warp."""
    return len(diffeo(seeded(seed), 2).steps[0].shape) == 4


# --- views


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("before", ["weak", "nothing"])
def test_image_label_and_confidence_move_together(seed: int, before: str) -> None:
    labels = blobs(6, SIZE, seed)
    images, confidence = painted(labels), labels / 3
    g = seeded(seed)
    after = weak(g, 6, SIZE) if before == "weak" else None
    view = strong_view(g, images, labels, confidence, after=after, strength=STILL)
    assert misplaced(view.images, view.labels, view.confidence) < 0.01
    assert view.labels.dtype == labels.dtype and view.inside.shape == labels.shape
    assert misplaced(view.images, labels) > 0.05  # nothing moved would pass too


def test_half_of_each_image_is_the_next_one() -> None:
    images = torch.arange(5).float()[:, None, None, None].expand(5, 1, *SIZE) / 5
    labels = torch.arange(5)[:, None, None].expand(5, *SIZE)
    seed = next(s for s in range(20) if not warping(s))
    view = mixed_view(seeded(seed), images, labels)
    torch.testing.assert_close(view.images[:, 0], view.labels / 5)
    for n in range(5):
        assert set(view.labels[n].unique().tolist()) == {n, (n + 1) % 5}
        assert float((view.labels[n] == n).float().mean()) == pytest.approx(0.5, abs=1 / 64)


def test_the_warp_is_a_coin_and_cutmix_always() -> None:
    labels = blobs(4, SIZE)
    images = torch.rand(4, 1, *SIZE, generator=seeded(1))
    levels = [float(torch.isin(mixed_view(seeded(s), images, labels).images, images).float().mean()) for s in range(24)]
    unwarped = [level == 1 for level in levels]
    assert unwarped == [not warping(s) for s in range(24)]
    assert 6 <= sum(unwarped) <= 18
    assert not any(torch.equal(mixed_view(seeded(s), images).images, images) for s in range(24))


def test_only_the_image_has_brightness() -> None:
    labels = blobs(6, SIZE)
    images, confidence = 0.5 * painted(labels) + 0.25, labels / 3
    plain = mixed_view(seeded(2), images, labels, confidence)
    strong = strong_view(seeded(2), images, labels, confidence)
    assert not torch.equal(plain.images, strong.images)
    assert torch.equal(plain.labels, strong.labels) and torch.equal(plain.confidence, strong.confidence)
    assert torch.equal(plain.inside, strong.inside)


def test_a_geometry_before_it_and_the_warp_are_one_resampling(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    sample = F.grid_sample

    def counted(maps: Tensor, points: Tensor, mode: str = "bilinear", *rest: str, **options: object) -> Tensor:
        if "border" not in options.values():  # not a displacement field
            calls.append(mode)
        return sample(maps, points, mode, *rest, **options)

    monkeypatch.setattr(F, "grid_sample", counted)
    seed = next(s for s in range(20) if warping(s))
    turned = Geometry((matrices.rotation(torch.full((4,), 10.0), SIZE),))
    labels = blobs(4, SIZE)
    strong_view(seeded(seed), painted(labels), labels, labels / 3, after=turned)
    assert sorted(calls) == ["bilinear", "nearest"]


def test_the_warp_comes_after_the_geometry() -> None:
    seed = next(s for s in range(20) if warping(s))
    images = F.interpolate(torch.rand(4, 1, 9, 9, generator=seeded(1)), SIZE, mode="bicubic").clamp(0, 1)
    turn = Geometry((matrices.quarter_turns(torch.ones(4, dtype=torch.int64)),))  # exact, so the same in two steps
    expected = mixed_view(seeded(seed), turn.apply(images).images).images
    torch.testing.assert_close(mixed_view(seeded(seed), images, after=turn).images, expected, atol=1e-4, rtol=0)
    assert (mixed_view(seeded(seed), images).images - expected).abs().max() > 0.1


def test_pixels_from_beyond_the_frame_get_the_label_to_ignore_and_no_confidence() -> None:
    labels = torch.ones(4, *SIZE, dtype=torch.int64)
    turned = Geometry((matrices.rotation(torch.full((4,), 45.0), SIZE),))
    view = strong_view(seeded(), painted(labels), labels, labels.float(), after=turned, ignore=-1)
    assert set(view.labels.unique().tolist()) == {-1, 1}
    assert torch.equal(view.labels == 1, view.inside) and (view.confidence[~view.inside] == 0).all()


def test_views_share_no_memory_with_what_they_show() -> None:
    labels = blobs(4, SIZE)
    images = painted(labels)
    kept = images.clone(), labels.clone()
    for seed in range(8):
        for view in (PUBLISHED.view(seeded(seed), images, labels), strong_view(seeded(seed), images, labels)):
            view.images.add_(1)
            view.labels.add_(1)
    assert torch.equal(images, kept[0]) and torch.equal(labels, kept[1])


def test_a_batch_has_the_labelled_first() -> None:
    step = step_of(stage_of(Supervised), labelled=2, unlabelled=4)
    step.labelled.images.copy_(painted(step.labelled.labels))
    step.unlabelled.images.fill_(0.77)
    images, labels = weak_batch(step)
    assert len(images) == 6 and len(labels) == 2
    assert misplaced(images[:2], labels) < 0.01
    assert (images[2:, :, 20:44, 20:44] - 0.77).abs().max() < 1e-5 < (images[:2] - 0.77).abs().min()


def test_every_slice_of_a_batch_is_augmented_and_labels_move_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "weak", quarter_turn)
    step = step_of(stage_of(Supervised), labelled=2, unlabelled=4)
    images, labels = weak_batch(step)
    assert torch.equal(images, turned(torch.cat([step.labelled.images, step.unlabelled.images])))
    assert torch.equal(labels, turned(step.labelled.labels))


# --- the stage


@pytest.mark.parametrize("augmentation", ["weak", "strong"])
def test_the_network_sees_the_view_and_is_judged_by_its_labels(augmentation: str) -> None:
    stage = stage_of(Supervised, augmentation=augmentation)
    for index in range(3):
        step = step_of(stage, index=index, labelled=6, unlabelled=0)
        images, labels = step.labelled.images, step.labelled.labels
        g = seeded(index)
        chain = weak(g, 6, SIZE) if augmentation == "strong" else None
        view = strong_view(g, images, labels, after=chain) if chain else PUBLISHED.view(g, images, labels)
        seen = calls_of(step.student["unet"])
        loss = stage.losses(step)["supervised"]
        assert torch.equal(seen[0][0], view.images)
        torch.testing.assert_close(loss, 0.5 * supervised(seen[0][1].logits, view.labels))


@pytest.mark.parametrize("augmentation", ["weak", "strong"])
@pytest.mark.parametrize("augment", [PUBLISHED, Fitted()])
def test_slices_larger_than_the_window_are_seen_through_it(augmentation: str, augment: Augmentation) -> None:
    stage = stage_of(Supervised, augmentation=augmentation)
    step = replace(step_of(stage, labelled=6, unlabelled=0, size=64), window=(48, 32), augment=augment)
    seen = calls_of(step.student["unet"])
    losses = stage.losses(step)
    assert seen[0][0].shape == (6, 1, 48, 32) and bool(torch.isfinite(losses["supervised"]))


def numbered(labels: Tensor) -> Tensor:
    """Slice n of a batch has intensity n/10 + class/100 everywhere: pixels tell where they are from."""
    return (torch.arange(len(labels))[:, None, None] / 10 + labels / 100)[:, None]


@pytest.mark.parametrize("paste", [True, False])
def test_slices_are_pasted_into_each_other_with_their_labels(monkeypatch: pytest.MonkeyPatch, paste: bool) -> None:
    monkeypatch.setattr(published, "weak", quarter_turn)
    stage = stage_of(Supervised, copy_paste=paste, scale=1.0)
    step = step_of(stage, labelled=8, unlabelled=0)
    step.labelled.images.copy_(numbered(step.labelled.labels))
    seen = calls_of(step.student["unet"])
    loss = stage.losses(step)["supervised"]
    images, out = seen[0]
    owner, labels = (images[:, 0] * 10 + 0.01).floor().long(), ((images[:, 0] * 100).round() % 10).long()
    torch.testing.assert_close(loss, supervised(out.logits, labels))
    foreign = owner != torch.arange(8)[:, None, None]
    assert foreign.any() == paste
    assert torch.equal(owner, torch.where(foreign, (torch.arange(8)[:, None, None] + 1) % 8, owner))
    shares = foreign.float().mean((1, 2))
    assert all(share == 0 or abs(share - (43 / 64) ** 2) < 1e-6 for share in shares.tolist())


def test_appearance_comes_after_pasting() -> None:
    stage = stage_of(Supervised, copy_paste=True)
    step = replace(step_of(stage, labelled=4, unlabelled=0), augment=Fitted())
    seen = calls_of(step.student["unet"])
    stage.losses(step)
    g = seeded()
    view = views.pasted(g, Fitted().view(g, step.labelled.images, step.labelled.labels))
    assert torch.equal(seen[0][0], Fitted().appearance(g, view.images, None))


def test_settings_of_the_stage() -> None:
    stage = stage_of(Supervised)
    assert (stage.name, stage.unlabelled, stage.averaged, weights_at(stage)) == ("supervised", False, (), {})
    assert (stage.settings.augmentation, stage.settings.scale, stage.settings.copy_paste) == ("weak", 0.5, False)
    assert list(stage.networks()) == ["unet"]


def test_the_scale_scales_and_the_network_learns() -> None:
    found = []
    for scale in (0.5, 1.0):
        stage = stage_of(Supervised, scale=scale)
        step = step_of(stage, unlabelled=0)
        without_dropout(step.student)
        losses = stage.losses(step)
        assert list(losses) == ["supervised"]
        losses["supervised"].backward()
        assert with_gradient(step.student) == {"unet"}
        found.append(float(losses["supervised"].detach()))
    assert found[1] == pytest.approx(2 * found[0])
