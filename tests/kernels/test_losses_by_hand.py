"""L_eqv and L_contrast by hand, for the kernels and for plain PyTorch alike: constants, and who gets a gradient."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from mona_kernels.ops import OPS, Kernels, Ops

BOTH: tuple[Kernels, ...] = ("native", "reference")


@pytest.fixture(params=BOTH)
def ops(request: pytest.FixtureRequest) -> Ops:
    return OPS[request.param]


def still(count: int, side: int) -> Tensor:
    """The points of the pixels themselves."""
    axis = torch.linspace(-1, 1, side)
    return torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).expand(count, -1, -1, -1).contiguous()


def test_no_probability_is_below_a_millionth(ops: Ops) -> None:
    """decision 7.  P = (1, 0) against Q = (0, 1): twice (1 - 1e-6) ln 1e6."""
    certain = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4).contiguous()
    opposite = torch.tensor([-100.0, 100.0]).view(1, 2, 1, 1).expand(1, 2, 4, 4).contiguous()
    found = ops.equivariance(certain, torch.ones(1, 4, 4), still(1, 4), opposite)
    assert float(found) == pytest.approx(2 * (1 - 1e-6) * math.log(1e6), rel=1e-4)


def test_equivariance_is_the_sum_of_both_kl_over_the_mask_of_each_image(ops: Ops) -> None:
    g = Generator().manual_seed(0)
    p = torch.randn(2, 3, 4, 4, generator=g).softmax(1).requires_grad_()
    logits = torch.randn(2, 3, 4, 4, generator=g).requires_grad_()
    mask = (torch.rand(2, 4, 4, generator=g) < 0.4).float()
    q = logits.softmax(1)
    both = (p * (p / q).log() + q * (q / p).log()).sum(1)
    expected = ((mask * both).sum((1, 2)) / mask.sum((1, 2))).mean()
    found = ops.equivariance(p, mask, still(2, 4), logits)
    torch.testing.assert_close(found, expected)
    found.backward()
    assert p.grad is None and logits.grad is not None and bool(logits.grad.any())


def test_beyond_the_frame_there_is_nothing_and_at_its_edge_what_is_inside(ops: Ops) -> None:
    """Half a pixel to the right of the frame's last column: half the weight, and that column's own distribution."""
    g = Generator().manual_seed(1)
    p, logits = torch.randn(1, 3, 4, 4, generator=g).softmax(1), torch.randn(1, 3, 4, 4, generator=g)
    points = still(1, 4).clone()
    points[..., 0] += 1 / 3  # a pixel is 2/3 wide, so columns now show 0.5, 1.5, 2.5, 3.5
    seen = torch.stack([(p[..., n] + p[..., n + 1]) / 2 for n in range(3)] + [p[..., 3]], -1)
    q, weight = logits.softmax(1), torch.tensor([1.0, 1.0, 1.0, 0.5])
    both = ((seen - q) * (seen / q).log()).sum(1)
    expected = (weight * both).sum() / (weight.sum() * 4)
    torch.testing.assert_close(ops.equivariance(p, torch.ones(1, 4, 4), points, logits), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["shared", "exact", "expected"])
def test_contrast_is_infonce_of_cosines_over_the_classes_that_ask(ops: Ops, mode: str) -> None:
    """method 4.2.7 and decision 2: -log e^(q.r+/t) / (e^(q.r+/t) + sum of e^(q.k/t)), the mean over queries and then
    over the classes that have any; only the queries learn.  Rows come in all lengths, keys have length 1."""
    g = Generator().manual_seed(2)
    classes, each, dim, slots, count, temperature = 3, 4, 5, 6, 7, 0.3
    queries = (3 * torch.randn(classes, each, dim, generator=g)).requires_grad_()
    means = (2 * torch.randn(classes, dim, generator=g)).requires_grad_()
    rings = F.normalize(torch.randn(classes, slots, dim, generator=g), dim=2).requires_grad_()
    active = torch.tensor([True, False, True])
    drawn = torch.randint(0, classes * slots, (classes, 1 if mode == "shared" else each, count), generator=g)
    law = torch.tensor([[0.0, 0.2, 0.8], [0.5, 0.0, 0.5], [0.7, 0.3, 0.0]])
    filled = torch.tensor([slots, slots - 2, slots])
    given = {"law": law, "filled": filled, "count": count} if mode == "expected" else {"drawn": drawn}
    found = ops.contrast(queries, active, means, rings, temperature=temperature, mode=mode, **given)

    def alike(a: Tensor, b: Tensor) -> Tensor:
        return (F.cosine_similarity(a, b, dim=0) / temperature).exp()

    losses = []
    for c in (0, 2):
        terms = []
        for n in range(each):
            q = queries[c, n]
            if mode == "expected":
                held = [rings[v, : int(filled[v])] for v in range(classes)]
                far = count * sum(law[c, v] * sum(alike(q, k) for k in held[v]) / len(held[v]) for v in range(classes))
            else:
                far = sum(alike(q, rings.flatten(0, 1)[slot]) for slot in drawn[c, 0 if mode == "shared" else n])
            near = alike(q, means[c])
            terms.append(-(near / (near + far)).log())
        losses.append(sum(terms) / each)
    torch.testing.assert_close(found, sum(losses) / 2, rtol=1e-4, atol=1e-5)
    found.backward()
    assert means.grad is None and rings.grad is None
    assert queries.grad is not None and queries.grad.flatten(1).abs().sum(1).gt(0).tolist() == active.tolist()
