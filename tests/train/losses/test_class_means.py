"""PLC's local loss: written out in loops, with classes missing here and there; closed forms and gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from helpers.steps import blobs, seeded
from torch import Tensor

from mona_train.losses.class_means import class_means_contrast


def written_out(maps: Tensor, labels: Tensor, draws: Tensor, t: float) -> float:
    count, organs, each = draws.shape
    means = {}
    for i in range(count):
        for c in range(1, organs + 1):
            if (labels[i] == c).any():
                means[i, c] = maps[i][:, labels[i] == c].mean(1)
    terms = []
    for i in range(count):
        for j in (j for j in range(count) if j != i):
            for (_, c), mine in ((key, m) for key, m in means.items() if key[0] == i):
                pixels = maps[i][:, labels[i] == c]
                for n in range(each):
                    z = pixels[:, int(draws[i, c - 1, n] * pixels.shape[1])]
                    cosines = [F.cosine_similarity(z, m, dim=0) / t for key, m in means.items() if key[0] in (i, j)]
                    whole = torch.stack(cosines).logsumexp(0)
                    for m in (mine, means.get((j, c))):
                        if m is not None:
                            terms.append(float(whole - F.cosine_similarity(z, m, dim=0) / t))
    return sum(terms) / len(terms)


def case(count: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    maps = torch.randn(count, 6, 12, 10, generator=seeded(1))
    draws = torch.rand(count, 3, 3, generator=seeded(2), dtype=torch.float64)
    return maps, blobs(count, (12, 10), seed=3), draws


@pytest.mark.parametrize("t", [0.1, 1.0])
def test_it_is_what_the_equation_says(t: float) -> None:
    maps, labels, draws = case()
    labels[0][labels[0] == 2] = 0  # an organ that one image does not show
    labels[1] = 0  # an image without any
    labels[2][:3] = -1  # unknown
    found = class_means_contrast(maps, labels, draws, temperature=t)
    torch.testing.assert_close(float(found), written_out(maps, labels, draws, t), rtol=1e-5, atol=1e-5)


def test_closed_form() -> None:
    """Each organ has its own axis, in every image: two of six means are right."""
    _, labels, draws = case(3)
    maps = torch.eye(4)[labels].movedim(-1, 1)
    expected = math.log(2 + 4 * math.exp(-1 / 0.5))
    assert float(class_means_contrast(maps, labels, draws, temperature=0.5)) == pytest.approx(expected)
    swapped = maps.clone()
    swapped[0] = maps[0][[0, 2, 3, 1]]  # one image calls its organs by other names
    assert float(class_means_contrast(swapped, labels, draws, temperature=0.5)) > expected + 0.3


def test_background_does_not_matter() -> None:
    maps, labels, draws = case()
    other = torch.where(labels[:, None] > 0, maps, torch.randn(maps.shape, generator=seeded(9)))
    torch.testing.assert_close(
        class_means_contrast(other, labels, draws, temperature=0.1),
        class_means_contrast(maps, labels, draws, temperature=0.1),
    )
    maps.requires_grad_()
    class_means_contrast(maps, labels, draws, temperature=0.1).backward()
    reached = maps.grad.abs().sum(1) > 0
    assert torch.equal(reached, labels > 0)  # means have a gradient too, so all pixels of organs


def test_every_image_counts_the_same() -> None:
    maps, labels, draws = case()
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(
        class_means_contrast(maps[order], labels[order], draws[order], temperature=0.1),
        class_means_contrast(maps, labels, draws, temperature=0.1),
    )


@pytest.mark.parametrize("shown", ["one image", "nothing", "one of two"])
def test_without_pairs_nothing_breaks(shown: str) -> None:
    maps, labels, draws = case(1 if shown == "one image" else 2)
    labels[0 if shown == "nothing" else 1 :] = 0
    if shown == "nothing":
        labels[:] = 0
    maps.requires_grad_()
    loss = class_means_contrast(maps, labels, draws, temperature=0.1)
    loss.backward()
    assert maps.grad.isfinite().all() and (loss == 0) == (shown != "one of two")


def test_it_is_computed_in_32_bit() -> None:
    maps, labels, draws = case()
    expected = class_means_contrast(maps, labels, draws, temperature=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(class_means_contrast(maps, labels, draws, temperature=0.1), expected)


def test_wrong_shapes_are_named() -> None:
    maps, labels, draws = case()
    with pytest.raises(ValueError, match=r"labels \(B, H, W\)"):
        class_means_contrast(maps, labels[:, 1:], draws, temperature=0.1)
