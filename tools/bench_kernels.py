"""The contrastive part of a step: mona's kernels against plain PyTorch, torch.compile, and the published dense way.

Results are first checked to agree, at the same shapes that are then timed.  At the paper's scale unless --quick.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from measuring import Cost, console, show
from measuring import cost as measured
from pytorch_metric_learning.losses import SupConLoss
from rich.table import Table
from torch import Tensor

from mona_kernels.ops import NATIVE, REFERENCE, Kernels, Ops
from mona_kernels.ops.sampling import reference as sampling
from mona_kernels.ops.sampling import thresholds
from mona_train.losses.tailness import Tailness
from mona_train.networks.representation import RepresentationHead

# If fused, each round of Philox would be computed twice for the next: 2^10 copies, and minutes of compiling.
sampling.philox_block = torch.compiler.disable(sampling.philox_block)
CHANNELS = (256, 128, 64, 32, 16)
TEMPERATURE = 0.5
cost = partial(measured, again=True)  # as in a training loop


@dataclass(frozen=True)
class Shape:
    images: int = 6
    side: int = 256
    classes: int = 4
    queries: int = 256
    keys: int = 512
    dim: int = 512

    def __str__(self) -> str:
        return (
            f"{self.images} images {self.side}x{self.side}, {self.classes} classes, {self.queries} queries, "
            f"{self.keys} keys, D = {self.dim}, {torch.get_num_threads()} threads"
        )


class Scene:
    """The inputs of a step's losses; features have the memory layout of the U-Net's output."""

    def __init__(self, shape: Shape) -> None:
        torch.manual_seed(0)
        self.shape = s = shape
        self.student, self.teacher = (self._pyramid(gradient) for gradient in (True, False))
        size = (s.side, s.side)
        smooth = partial(
            F.interpolate, size=size, mode="bicubic", align_corners=True
        )  # smooth, like organs and uncertainty
        self.labels = smooth(torch.rand(s.images, s.classes, 8, 8)).argmax(1)
        self.logits = torch.randn(s.images, s.classes, *size).to(memory_format=torch.channels_last).requires_grad_()
        self.probabilities = self.logits.detach().softmax(1)
        self.confidence = smooth(0.5 + 0.5 * torch.rand(s.images, 1, 8, 8)).clamp(0, 1)[:, 0]
        frame = torch.linspace(-1, 1, s.side)
        points = torch.stack(torch.meshgrid(frame, frame, indexing="xy")).expand(s.images, -1, -1, -1)
        self.points = (0.9 * points + 0.05).permute(0, 2, 3, 1)
        self.head = RepresentationHead(CHANNELS, s.dim, predictor=True)
        self.head_of_teacher = RepresentationHead(CHANNELS, s.dim, predictor=True).requires_grad_(False)

    def _pyramid(self, gradient: bool) -> list[Tensor]:
        sides = [self.shape.side >> (4 - n) for n in range(5)]
        levels = [torch.randn(self.shape.images, c, n, n) for c, n in zip(CHANNELS, sides, strict=True)]
        return [level.to(memory_format=torch.channels_last).requires_grad_(gradient) for level in levels]

    @property
    def leaves(self) -> list[Tensor]:
        return [*self.student, self.logits, *self.head.parameters()]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        return [g for g in torch.autograd.grad(loss, self.leaves, allow_unused=True) if g is not None]

    def tailness(self, kernels: Kernels = "native", mode: Any = "shared") -> Tailness:
        s = self.shape
        return Tailness(s.classes, s.dim, queries=s.queries, keys=s.keys, mode=mode, kernels=kernels)

    def sketch(self) -> Tailness:
        loss = self.tailness("reference", "exact")
        loss.ops = REFERENCE._replace(contrast=gathered)
        return loss


def contrastive(scene: Scene, tailness: Callable[..., Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Census, sampling, means, gather, projection, logits, and the backward pass of all of it."""
    loss = tailness(
        scene.student, scene.probabilities, scene.teacher, scene.labels, scene.confidence,
        scene.head, scene.head_of_teacher, seed=0, step=0,
    )  # fmt: skip
    return loss.detach(), scene.gradients(loss)


def gathered(
    queries: Tensor, active: Tensor, positives: Tensor, rings: Tensor, *, temperature: float, mode: str, drawn: Tensor
) -> Tensor:
    """Mode `exact` literally (method 4.2, 6 and 7): all keys of all queries of a class in one tensor, Q x N x D."""
    losses = []
    for query, positive, slots in zip(queries, positives, drawn, strict=True):
        keys = rings.flatten(0, 1)[slots.clamp_min(0)]
        every = torch.cat([positive.expand(len(query), 1, -1), keys], 1)
        scores = F.cosine_similarity(query[:, None], every, dim=2) / temperature
        losses.append(F.cross_entropy(scores, torch.zeros(len(query), dtype=torch.int64)))
    return torch.stack(losses).masked_fill(~active, 0).sum() / active.sum().clamp_min(1)


def products(s: Shape, fill: int = 256) -> Callable[[], None]:
    """Only the matrix products of the formulation without dense maps: what remains to be gained beyond BLAS."""
    *mixed, last = accumulate(CHANNELS)
    collapse = [(n, n, s.dim) for n in mixed]
    predictor = 2 * [(s.dim, s.dim, last)]
    rows = [(s.classes * s.queries, last, s.dim)]
    student = [*collapse, *predictor, *rows]
    backward = [shape for m, k, n in student for shape in ((m, n, k), (k, m, n))]
    teacher = [*collapse, (s.classes * fill, last, s.dim)]
    scores = s.classes * [(s.queries, s.dim, s.keys), (s.queries, s.keys, s.dim)]
    pairs = [(torch.randn(m, k), torch.randn(k, n)) for m, k, n in student + backward + teacher + scores]

    def run() -> None:
        for a, b in pairs:
            a @ b

    return run


def dense(scene: Scene) -> tuple[Tensor, list[Tensor]]:
    """As published (method 2.3, 4.2, 9): whole maps of D channels, and separate keys for every query.

    It upsamples by 2 from level to level, which differs from a single bilinear step only in interpolation.
    """
    s = scene.shape
    student = dense_rows(scene.head, scene.student, predict=True)
    with torch.no_grad():
        teacher = dense_rows(scene.head_of_teacher, scene.teacher, predict=False)
    valid, labels = (scene.confidence >= 0.7).flatten(), scene.labels.flatten()
    own = scene.probabilities.gather(1, scene.labels[:, None]).flatten()
    pixels = [(valid & (labels == c)).nonzero()[:, 0] for c in range(s.classes)]
    means = torch.stack([teacher[p].mean(0) for p in pixels])
    graph = F.cosine_similarity(means[:, None], means[None], dim=2) / TEMPERATURE
    losses = []
    for c in range(s.classes):
        hard = pixels[c][own[pixels[c]] < 0.97]
        queries = student[hard[torch.randint(len(hard), (s.queries,))]]
        others = torch.tensor([v for v in range(s.classes) if v != c])
        drawn = others[torch.multinomial(graph[c, others].softmax(0), s.queries * s.keys, replacement=True)]
        index = torch.empty_like(drawn)
        for v in others.tolist():
            where = drawn == v
            index[where] = pixels[v][torch.randint(len(pixels[v]), (int(where.sum()),))]
        negatives = teacher[index].view(s.queries, s.keys, s.dim)  # the gather of method 8.2
        every = torch.cat([means[c].expand(s.queries, 1, -1), negatives], 1)
        scores = F.cosine_similarity(queries[:, None], every, dim=2) / TEMPERATURE
        losses.append(F.cross_entropy(scores, torch.zeros(s.queries, dtype=torch.int64)))
    loss = torch.stack(losses).mean()
    return loss.detach(), scene.gradients(loss)


def dense_rows(head: RepresentationHead, levels: list[Tensor], *, predict: bool) -> Tensor:
    x = levels[0] + F.conv2d(levels[0], head.mix[0].weight[..., None, None])
    for layer, level in zip([*head.mix[1:], None], levels[1:], strict=True):
        raised = F.interpolate(x, level.shape[2:], mode="bilinear", align_corners=True)
        x = torch.cat([raised, level], 1)
        if layer is not None:
            x = x + F.conv2d(x, layer.weight[..., None, None])
    for layer in (head.project, *(head.predictor if predict else ())):
        x = F.conv2d(x, layer.weight[..., None, None])
    return x.permute(0, 2, 3, 1).flatten(0, 2)


def agree(found: Any, expected: Any, name: str) -> None:
    """Results must agree: losses to 1e-4, gradients to 1e-3 of their largest entry."""
    loss, gradients = found
    torch.testing.assert_close(loss, expected[0], rtol=0, atol=1e-4, msg=lambda m: f"{name}: {m}")
    for a, b in zip(gradients, expected[1], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3 * max(float(b.abs().max()), 1e-12))


def bench_whole(shape: Shape, runs: int, *, with_dense: bool) -> None:
    scene = Scene(shape)
    ours, plain = (partial(contrastive, scene, scene.tailness(k)) for k in ("native", "reference"))
    compiled_loss = torch.compile(scene.tailness("reference"))
    compiled = partial(contrastive, scene, compiled_loss)
    expected = contrastive(scene, scene.tailness("reference"))
    agree(contrastive(scene, scene.tailness()), expected, "kernels")
    agree(compiled(), expected, "compiled reference")
    exact, sketch = (partial(contrastive, scene, loss) for loss in (scene.tailness(mode="exact"), scene.sketch()))
    expected = contrastive(scene, scene.sketch())
    agree(contrastive(scene, scene.tailness(mode="exact")), expected, "kernels, exact")
    rows = {
        "mona": cost(ours, runs),
        "plain PyTorch, dense-free": cost(plain, runs),
        "the same under torch.compile": cost(compiled, runs),
        "its matrix products alone": cost(products(shape), runs),
        "mona, keys of its own for every query": cost(exact, runs),
        "plain PyTorch, dense-free, those keys gathered": cost(sketch, 3),
    }
    if with_dense:
        rows["dense, as published"] = measured(partial(dense, scene), 1)
    show(f"contrastive part, forward and backward: {shape}", rows)


def ops_of(scene: Scene) -> dict[str, Callable[[Ops], tuple[Tensor, list[Tensor]]]]:
    """Each op, forward and (if it has one) backward, on the inputs of a step."""
    s = scene.shape
    draws: dict[str, Any] = {"fill": 256, "queries": s.queries, "seed": 0, "step": 1, "stream": 0}
    bounds = {"likely": 0.7, "hard": 0.97}

    def census(ops: Ops) -> Any:
        return ops.census(scene.probabilities, scene.labels, scene.confidence, **bounds, **draws)

    found = census(REFERENCE)
    ring = 2048
    rings = F.normalize(torch.randn(s.classes, ring, s.dim), dim=-1)
    filled = torch.full((s.classes,), ring)
    law = (1 - torch.eye(s.classes)) / max(s.classes - 1, 1)
    limits, active = thresholds(law, filled), torch.ones(s.classes, dtype=torch.bool)
    queries = torch.randn(s.classes, s.queries, s.dim, requires_grad=True)
    positives = torch.randn(s.classes, s.dim)

    def keys(ops: Ops, each: int) -> Tensor:
        return ops.draw_keys(limits, filled, s.keys, ring, queries=each, seed=0, step=0, stream=0)

    def contrast(mode: Any, each: int) -> Callable[[Ops], tuple[Tensor, list[Tensor]]]:
        given: dict[str, Any] = {"law": law, "filled": filled, "count": s.keys}
        if mode != "expected":
            given = {"drawn": keys(REFERENCE, each)}

        def run(ops: Ops) -> tuple[Tensor, list[Tensor]]:
            loss = ops.contrast(queries, active, positives, rings, temperature=TEMPERATURE, mode=mode, **given)
            return loss.detach(), list(torch.autograd.grad(loss, queries))

        return run

    def equivariance(ops: Ops) -> tuple[Tensor, list[Tensor]]:
        loss = ops.equivariance(scene.probabilities, scene.labels > 0, scene.points, scene.logits)
        return loss.detach(), list(torch.autograd.grad(loss, scene.logits))

    def gather(ops: Ops) -> tuple[Tensor, list[Tensor]]:
        rows = ops.pyramid_gather(scene.student, found.queries.flatten(), (s.side, s.side))
        return rows.detach(), list(torch.autograd.grad(rows.mean(), scene.student))

    return {
        "census": lambda ops: (census(ops).queries, []),
        "draw_keys": lambda ops: (keys(ops, 1), []),
        "class_sums": lambda ops: (ops.class_sums(scene.teacher, found.known, s.classes) / s.side**2, []),
        "pyramid_gather, both ways": gather,
        "contrast shared, both ways": contrast("shared", 1),
        "contrast exact, both ways": contrast("exact", s.queries),
        "contrast expected, both ways": contrast("expected", 0),
        "equivariance, both ways": equivariance,
    }


def bench_ops(shape: Shape, runs: int) -> None:
    for name, op in ops_of(Scene(shape)).items():
        agree(op(NATIVE), op(REFERENCE), name)
        compiled = torch.compile(partial(op, REFERENCE))
        agree(compiled(), op(REFERENCE), f"{name}, compiled")
        rows = {
            "mona": cost(partial(op, NATIVE), runs),
            "plain PyTorch": cost(partial(op, REFERENCE), runs),
            "the same under torch.compile": cost(compiled, runs),
        }
        show(name, rows)


def bench_supcon(shape: Shape, runs: int) -> None:
    """SupCon does not draw negatives: it compares every query with every key, including positives."""
    s = shape
    queries = torch.randn(s.classes, s.queries, s.dim, requires_grad=True)
    keys = F.normalize(torch.randn(s.classes, s.keys, s.dim), dim=-1)
    ids = torch.arange(s.classes)
    others = torch.stack([torch.arange(s.keys) + (c + 1) % s.classes * s.keys for c in range(s.classes)])[:, None]
    everyone = torch.ones(s.classes, dtype=torch.bool)
    supcon = SupConLoss(temperature=TEMPERATURE)

    def ours() -> Any:
        loss = NATIVE.contrast(
            queries, everyone, keys.mean(1), keys, temperature=TEMPERATURE, mode="shared", drawn=others
        )
        return torch.autograd.grad(loss, queries)

    def theirs() -> Any:
        loss = supcon(
            queries.flatten(0, 1), ids.repeat_interleave(s.queries),
            ref_emb=keys.flatten(0, 1), ref_labels=ids.repeat_interleave(s.keys),
        )  # fmt: skip
        return torch.autograd.grad(loss, queries)

    peers = s.classes * s.keys
    show(
        f"one loss and its gradient, {s.classes * s.queries} queries, D = {s.dim}",
        {
            f"mona, shared: {s.keys} keys a query": cost(ours, runs),
            f"pytorch-metric-learning SupCon: {peers} keys a query": cost(theirs, runs),
        },
    )


def bench_scaling(base: Shape, runs: int) -> None:
    """One size is doubled twice, the others stay; exponents are log-log slopes from the smallest to the largest."""
    table = Table("", "", "time", "peak memory", title=f"scaling around {base}", title_justify="left")
    whole = 4e-6 * base.images * base.dim * base.side**2
    for name in ("images", "side", "classes", "queries", "keys", "dim"):
        values = [getattr(base, name) * factor for factor in (1, 2, 4)]
        found: list[Cost] = []
        for value in values:
            scene = Scene(replace(base, **{name: value}))
            loss = scene.tailness()
            contrastive(scene, loss)
            found.append(cost(partial(contrastive, scene, loss), runs))
        times, peaks = [c.best for c in found], [max(c.megabytes, 1.0) for c in found]
        slopes = [math.log(series[-1] / series[0]) / math.log(4) for series in (times, peaks)]
        table.add_row(
            name,
            ", ".join(map(str, values)),
            ", ".join(f"{t:.1f}" for t in times) + f" ms  ~ n^{slopes[0]:.2f}",
            ", ".join(f"{p:.0f}" for p in peaks) + f" MB  ~ n^{slopes[1]:.2f}",
        )
    console.print(table)
    console.print(
        f"one map of D x H x W for this batch would take {whole:.0f} MB; the gradients of its features are counted"
    )


def main(*, quick: bool = False, runs: int = 10, threads: int = 2) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        shape = Shape(images=2, side=64, queries=64, keys=96, dim=64) if quick else Shape()
        bench_whole(shape, runs, with_dense=True)
        bench_ops(shape, runs)
        bench_supcon(shape, runs)
        small = Shape(images=2, side=64, queries=32, keys=64, dim=64)
        bench_scaling(small if quick else Shape(2, 128, 4, 128, 256, 256), runs)
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small shapes: does it run?")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    main(**vars(parser.parse_args()))
