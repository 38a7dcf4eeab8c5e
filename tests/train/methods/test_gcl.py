"""GCL: depths are positives across scans and views, the encoder is frozen in stage 2, labels wait for stage 3."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from helpers.small_runs import small_config, train, trainer_of
from helpers.steps import calls_of, seeded, stage_of, step_of, with_gradient
from torch import nn

from mona_infer.errors import InputError
from mona_train.augment import Fitted
from mona_train.config.schema import Batch
from mona_train.engine.trainer import spans
from mona_train.losses.fixed_regions import region_pairs
from mona_train.losses.nt_xent import nt_xent
from mona_train.methods.base import Step
from mona_train.methods.gcl import PARTS, GCLFinetune, GCLGlobal, GCLLocal, crops
from mona_train.methods.registry import method_named
from mona_train.methods.supervised import Supervised


def reached(module: nn.Module) -> set[str]:
    """Names of the parts of a U-Net, or of its blocks, with a gradient."""
    return {name.split(".weight")[0].split(".bias")[0] for name, p in module.named_parameters() if p.grad is not None}


def step_with_depths(stage: GCLGlobal | GCLLocal, scans: int = 3) -> Step:
    return step_of(stage, labelled=1, unlabelled=PARTS * scans, size=32)


def test_slices_of_one_depth_are_positives_in_all_scans_and_views() -> None:
    stage = stage_of(GCLGlobal)
    step = step_with_depths(stage)
    head = calls_of(step.student["gcl_global"])
    loss = stage.losses(step)["global"]
    ((given, rows),) = head
    assert given.shape == (24, 64) and rows.shape == (24, 128)
    depth = [n % 4 for _ in range(2) for n in range(12)]
    same = torch.tensor([[a == b for b in depth] for a in depth])
    torch.testing.assert_close(loss, nt_xent(rows, same, temperature=0.1, negatives=~same))
    other = torch.arange(24) % 12  # SimCLR: of a slice only its other view
    simclr = nt_xent(rows, other[:, None] == other, temperature=0.1, negatives=~same)
    assert not torch.isclose(loss, simclr)


def test_a_network_that_knows_the_depth_has_no_loss() -> None:
    stage = stage_of(GCLGlobal)
    step = step_with_depths(stage)

    class Known(nn.Module):
        def forward(self, pooled: torch.Tensor) -> torch.Tensor:
            return torch.eye(PARTS).repeat(len(pooled) // PARTS, 1) + 0 * pooled.sum()

    random = stage.losses(step)["global"].detach()
    step.student["gcl_global"] = Known()
    assert stage.losses(step)["global"] < 1e-2 * random


def test_stage_1_trains_the_encoder_alone() -> None:
    stage = stage_of(GCLGlobal)
    step = step_with_depths(stage)
    stage.losses(step)["global"].backward()
    assert with_gradient(step.student) == {"unet", "gcl_global"}
    assert {name.split(".")[0] for name in reached(step.student["unet"])} == {"encoder"}


def test_stage_2_compares_regions_of_two_intensities() -> None:
    stage = stage_of(GCLLocal, temperature=0.3)
    step = step_of(stage, labelled=1, unlabelled=3, size=32)
    seen, head = calls_of(step.student["unet"]), calls_of(step.student["gcl_local"])
    loss = stage.losses(step)["local"]
    (images, out), (given, rows) = seen[0], head[0]
    assert given is out.features[2] and given.shape == (6, 16, 8, 8) and rows.shape == (6, 13, 128)
    positives, negatives = region_pairs(torch.tensor([0, 1, 2, 0, 1, 2]))
    torch.testing.assert_close(loss, nt_xent(rows.flatten(0, 1), positives, temperature=0.3, negatives=negatives))
    first, second = images.flatten(1)[:3], images.flatten(1)[3:]
    assert not torch.equal(first, second)
    likeness = torch.corrcoef(torch.cat([first, second]))[:3, 3:]
    assert (likeness.diagonal() > 0.9).all()  # the same places: geometry is shared


def test_stage_2_leaves_the_encoder_as_it_is() -> None:
    stage = stage_of(GCLLocal)
    step = step_of(stage, labelled=1, unlabelled=3, size=32)
    unet = step.student["unet"]
    before = {name: t.clone() for name, t in unet.encoder.state_dict().items() if "num_batches" not in name}
    means = unet.decoder[0].block[1].running_mean.clone()
    stage.losses(step)["local"].backward()
    assert with_gradient(step.student) == {"unet", "gcl_local"}
    assert {name[:9] for name in reached(unet)} == {"decoder.0", "decoder.1"}
    assert all(torch.equal(unet.encoder.state_dict()[name], t) for name, t in before.items())
    assert not torch.equal(unet.decoder[0].block[1].running_mean, means)


def test_crops_are_half_a_frame_and_inside_it() -> None:
    points = crops(seeded(1), 200).points((9, 9))
    assert points.abs().max() <= 1 + 1e-6 and points.abs().max() > 0.95
    spans_ = points.flatten(2).amax(2) - points.flatten(2).amin(2)
    torch.testing.assert_close(spans_, torch.full_like(spans_, 2 * 100 / 192))


def test_views_are_drawn_from_the_steps_generator_and_fit_the_window() -> None:
    stage = stage_of(GCLGlobal)

    def once(seed: int, elsewhere: int) -> torch.Tensor:
        step = replace(step_of(stage, labelled=1, unlabelled=8, size=48), window=(32, 32), augment=Fitted())
        seen = calls_of(step.student["unet"].encoder[0])
        torch.manual_seed(elsewhere)
        stage.losses(replace(step, generator=seeded(seed)))
        return seen[0][0]

    assert once(1, 1).shape == (16, 1, 32, 32)
    assert torch.equal(once(1, 1), once(1, 2)) and not torch.equal(once(1, 1), once(2, 1))


def test_stages_batches_and_optimisers() -> None:
    method = method_named("gcl")
    assert method.stages == (GCLGlobal, GCLLocal, GCLFinetune) and issubclass(GCLFinetune, Supervised)
    assert [span.steps for span in spans(small_config("gcl", steps=100))] == [20, 20, 60]
    one, two = stage_of(GCLGlobal), stage_of(GCLLocal)
    assert one.parts == 4 and one.everything and two.everything and two.parts == 0
    assert one.batch(Batch(3, 3)) == (1, 12) and one.batch(Batch(12, 12)) == (1, 24)
    assert two.batch(Batch(3, 3)) == (1, 6)
    for stage in (one, two):
        (turn,) = stage.turns()
        assert (turn.optimiser["kind"], turn.optimiser["lr"], turn.optimiser["over"]) == ("adam", 1e-3, "stage")
    assert stage_of(GCLFinetune).turns()[0].optimiser == {}
    with pytest.raises(InputError, match=r"gcl\.temperature must be 0\.001 or greater"):
        GCLGlobal.Settings(temperature=0)


@pytest.mark.parametrize("average", [False, True])
def test_a_run_freezes_the_encoder_and_then_trains_it(average: bool) -> None:
    trainer = train(trainer_of(small_config("gcl", steps=10, average=average)), until=2)
    encoders = []
    for until in (3, 4, 5, 10):
        train(trainer, until)
        encoders.append([p.clone() for p in trainer.student["unet"].encoder.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(encoders[0], encoders[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(encoders[0], encoders[3], strict=True) if a.ndim == 4)
    assert all(p.requires_grad for p in trainer.student.parameters())
