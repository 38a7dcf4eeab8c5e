"""UniMatch: two strong views and a perturbed stream, each judged by the weak view's pseudo-labels, with its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.encoders import encodings_of
from helpers.steps import CLASSES, calls_of, stage_of, step_of, with_gradient
from torch import Tensor

from mona_infer.errors import InputError
from mona_train.augment import Fitted
from mona_train.methods.fixmatch import FixMatch
from mona_train.methods.registry import method_named
from mona_train.methods.unimatch import Settings, UniMatch


class Watched:
    """A step of a stage, with the levels that enter the decoder, its answer, and the weak view's."""

    def __init__(self, stage: UniMatch, step: Any = None) -> None:
        self.step = step or step_of(stage, labelled=2, unlabelled=3, size=32)
        unet: Any = self.step.student["unet"]
        self.weak = calls_of(unet)
        self.encoded = encodings_of(unet)
        self.decoded: list[tuple[list[Tensor], Any]] = []
        decode = unet.decode

        def watched(levels: list[Tensor]) -> Any:
            self.decoded.append((levels, decode(levels)))
            return self.decoded[-1][1]

        unet.decode = watched
        self.losses = stage.losses(self.step)


@pytest.mark.parametrize("loss", ["ce", "dice"])
def test_the_streams_add_up_with_their_weights(loss: str) -> None:
    weights = {"strong_weight": 0.6, "feature_weight": 0.3}
    stage = stage_of(UniMatch, mix=0.0, sure=0.3, pseudo_loss=loss, **weights)
    seen = Watched(stage)
    logits = seen.decoded[1][1].logits
    assert len(logits) == 2 + 3 * 3 and len(seen.weak) == 1 and len(seen.encoded) == 2
    confidence, labels = seen.weak[0][1].logits.softmax(1).max(1)
    first, second, perturbed = (stage.judge(part, labels, confidence) for part in logits[2:].split(3))
    assert len({round(float(part), 5) for part in (first, second, perturbed)}) == 3
    torch.testing.assert_close(seen.losses["consistency"], 0.3 * first + 0.3 * second + 0.3 * perturbed)


def test_half_of_the_channels_of_all_levels_are_dropped_in_the_third_stream_alone() -> None:
    stage = stage_of(UniMatch)
    seen = Watched(stage)
    levels = seen.decoded[1][0]
    bottleneck = seen.encoded[1][1]
    assert len(levels) == 5
    torch.testing.assert_close(levels[-1][:8].mean((2, 3)), bottleneck[:8])  # labelled, and both strong views
    kept = levels[-1][8:].mean((2, 3)) / bottleneck[8:]
    assert bool(((kept == 0) | ((kept - 2).abs() < 1e-3)).all()) and 0.3 < float((kept == 0).float().mean()) < 0.7
    for level in levels:
        gone = (level == 0).flatten(2).all(2)
        assert not gone[:8].any() and bool(gone[8:].any()) and not bool(gone[8:].all())
        assert not torch.equal(gone[8], gone[9]) or level.shape[1] < 8  # drawn for each image
    assert not any(
        (level == 0).flatten(2).all(2).any() for level in Watched(stage_of(UniMatch, drop=0.0)).decoded[1][0]
    )


def test_the_third_stream_sees_the_weak_view_and_the_strong_views_differ() -> None:
    seen = Watched(stage_of(UniMatch, mix=1.0))
    images = seen.encoded[1][0]
    first, second, third = images[2:].split(3)
    assert torch.equal(third, seen.weak[0][0]) and torch.equal(third, seen.encoded[0][0])
    assert not torch.equal(first, second) and not torch.equal(first, third)


def test_in_a_fitted_run_the_third_stream_looks_as_weak_views_of_the_run_do() -> None:
    stage = stage_of(UniMatch)
    seen = Watched(stage, replace(step_of(stage, size=48), window=(32, 32), augment=Fitted()))
    assert seen.encoded[1][0].shape == (12, 1, 32, 32)
    assert not torch.equal(seen.encoded[1][0][9:], seen.weak[0][0])


def test_the_gradient_comes_from_every_stream_and_not_from_labelled_slices() -> None:
    stage = stage_of(UniMatch, sure=0.0)
    seen = Watched(stage)
    logits = seen.decoded[1][1].logits
    logits.retain_grad()
    seen.losses["consistency"].backward()
    found = logits.grad.flatten(1).abs().sum(1) > 0
    assert found.tolist() == [False] * 2 + [True] * 9
    assert with_gradient(seen.step.student) == {"unet"} and not seen.step.teacher


def test_a_weight_of_0_leaves_the_other_streams() -> None:
    for settings, alone in (({"feature_weight": 0.0}, slice(2, 8)), ({"strong_weight": 0.0}, slice(8, 11))):
        stage = stage_of(UniMatch, sure=0.0, **settings)
        seen = Watched(stage)
        logits = seen.decoded[1][1].logits
        logits.retain_grad()
        seen.losses["consistency"].backward()
        found = logits.grad.flatten(1).any(1)
        assert bool(found[alone].all()) and int(found.sum()) == len(found[alone])


def test_settings_are_those_of_the_authors_code_for_acdc() -> None:
    s = Settings()
    assert (s.sure, s.mix, s.drop, s.pseudo_loss) == (0.95, 0.5, 0.5, "dice")
    assert (s.supervised_scale, s.consistency_weight, s.strong_weight, s.feature_weight) == (0.5, 1.0, 0.5, 0.5)
    assert UniMatch.views == 2 and FixMatch.views == 1
    for wrong in ({"drop": 1.1}, {"strong_weight": -1.0}, {"feature_weight": -1.0}):
        with pytest.raises(InputError, match=f"unimatch.{next(iter(wrong))}"):
            Settings(**wrong)
    assert method_named("unimatch").stages == (UniMatch,)


def test_without_unlabelled_slices_only_the_supervised_loss_is_left() -> None:
    stage = stage_of(UniMatch)
    step = step_of(stage, unlabelled=0, size=32)
    student = calls_of(step.student["unet"])
    assert list(stage.losses(step)) == ["supervised"] and student[0][1].logits.shape[1] == CLASSES
