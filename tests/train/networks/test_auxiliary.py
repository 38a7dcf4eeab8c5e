"""Auxiliary decoders and heads: what perturbs them, what they are made of, and where their inputs come from."""

from __future__ import annotations

import pytest
import torch
from helpers.steps import seeded, without_dropout
from torch import Tensor, nn

from mona_train.networks import UNet
from mona_train.networks.auxiliary import AttentionDrop, CrossDecoders, FeatureNoise, PyramidHeads, encoder_levels


def maps(count: int = 3, channels: int = 5, size: int = 8) -> Tensor:
    return torch.rand(count, channels, size, size, generator=seeded()) + 0.1


def parameters(*networks: nn.Module) -> int:
    return sum(p.numel() for network in networks for p in network.parameters())


def test_noise_is_drawn_for_each_value_and_shared_by_the_batch() -> None:
    torch.manual_seed(0)
    x = maps(channels=50, size=16)
    factor = FeatureNoise(0.3)(x) / x
    torch.testing.assert_close(factor, factor[:1].expand_as(factor))
    one = factor[0]
    assert 0.7 <= one.min() < 0.71 and 1.29 < one.max() <= 1.3 + 1e-6
    assert float(one.mean()) == pytest.approx(1, abs=0.01)
    assert float(one.std()) == pytest.approx(0.3 / 3**0.5, abs=0.005)


def test_the_most_active_regions_of_each_image_are_dropped() -> None:
    torch.manual_seed(0)
    scale = torch.tensor([1.0, 100.0, 0.01]).view(3, 1, 1, 1)  # each image has its own maximum
    x = maps() * scale
    attention = x.mean(1, keepdim=True)
    ratio = attention / attention.amax((2, 3), keepdim=True)
    dropped = AttentionDrop()(x) == 0
    for mask in dropped:  # a pixel is dropped in all channels or in none
        assert torch.equal(mask, mask[:1].expand_as(mask))
    assert bool(dropped[ratio.expand_as(x) >= 0.9].all()) and not bool(dropped[ratio.expand_as(x) < 0.7].any())
    assert torch.equal(AttentionDrop()(x)[~dropped], x[~dropped])
    edge = torch.tensor([0.4, 0.65, 0.8, 1.0]).view(1, 1, 1, 4)
    kept = torch.stack([AttentionDrop()(edge).flatten() > 0 for _ in range(200)]).float().mean(0)
    assert kept[[0, 1, 3]].tolist() == [1, 1, 0] and 0.4 < float(kept[2]) < 0.6  # the share is drawn from 0.7..0.9


@pytest.mark.parametrize("perturbed", [FeatureNoise(0.3), AttentionDrop()])
def test_perturbations_are_for_training(perturbed: nn.Module) -> None:
    x = maps()
    assert torch.equal(perturbed.eval()(x), x)
    assert not torch.equal(perturbed.train()(x), x)


def test_sizes_are_the_published_ones() -> None:
    with torch.device("meta"):
        unet = UNet(4)
        cross = CrossDecoders(unet.channels, 4, noise=0.3, dropout=0.3)
        pyramid = PyramidHeads(unet.channels, 4, noise=0.3, dropout=0.5)
    assert round(parameters(unet, cross) / 1e6, 2) == 3.71
    assert parameters(cross) == 3 * parameters(unet.decoder, unet.head)
    assert parameters(pyramid) == sum(9 * n * 4 + 4 for n in (128, 64, 32))


def test_without_perturbation_a_decoder_with_the_same_weights_gives_the_same_answer() -> None:
    torch.manual_seed(0)
    unet = UNet(3, width=0.25)
    cross = CrossDecoders(unet.channels, 3, noise=0.3, dropout=0.3)
    cross.perturbations.eval()
    without_dropout(unet)
    for decoder in cross.decoders:
        decoder.up.load_state_dict(unet.decoder.state_dict())
        decoder.head.load_state_dict(unet.head.state_dict())
    images = torch.rand(2, 1, 32, 48, generator=seeded())
    with encoder_levels(unet) as levels:
        main = unet(images).logits
    assert len(levels) == 5
    for given, expected in zip(levels, unet.encode(images), strict=True):
        torch.testing.assert_close(given, expected)
    for logits in cross(levels):
        torch.testing.assert_close(logits, main)
    changed: list[Tensor] = []
    for perturbed in cross.perturbations:
        perturbed.register_forward_hook(lambda _, given, __: changed.append(given[0]))
    for n in range(3):  # each decoder has a perturbation of its own
        cross.perturbations.eval()[n].train()
        assert [torch.allclose(logits, main) for logits in cross(levels)] == [m != n for m in range(3)]
    assert [x.shape for x in changed] == [x.shape for x in levels] * 9  # of every level: no skip connection is clean
    unet(images)
    assert len(levels) == 5  # only the calls inside the context


def test_heads_read_the_decoder_at_three_scales_and_answer_at_full_size() -> None:
    torch.manual_seed(0)
    unet = UNet(3, width=0.25)
    heads = PyramidHeads(unet.channels, 3, noise=0.3, dropout=0.5)
    features = unet(torch.rand(2, 1, 32, 48, generator=seeded())).features
    answers = heads.eval()(features)
    assert [tuple(logits.shape) for logits in answers] == [(2, 3, 32, 48)] * 3
    for logits, step in zip(answers, (8, 4, 2), strict=True):  # nearest: every pixel of a block has the same answer
        corner = logits[:, :, ::step, ::step]
        assert torch.equal(logits, corner.repeat_interleave(step, 2).repeat_interleave(step, 3))
    for n in range(3):
        heads.eval().perturbations[n].train()
        assert [torch.equal(a, b) for a, b in zip(heads(features), answers, strict=True)] == [m != n for m in range(3)]
