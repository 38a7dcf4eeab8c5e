"""L_contrast against method 4.2 written out densely: whole maps, lists, one query and one key at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mona_kernels.ops.contrast import MODES
from mona_train.engine.distributed import SingleProcess
from mona_train.losses.tailness import Tailness
from mona_train.networks.representation import RepresentationHead

CHANNELS, DIM, SIZE = (5, 4, 3, 2, 2), 6, (16, 32)
SMALL = {"queries": 3, "keys": 7, "ring": 12, "fill": 5}  # the ring goes round in the third step
SEED = 11


@dataclass
class Batch:
    """What one process hands to the loss in one step."""

    student: list[Tensor]
    logits: Tensor
    teacher: list[Tensor]
    labels: Tensor
    valid: Tensor


def batch(classes: list[int], total: int, seed: int, *, size: tuple[int, int] = SIZE, count: int = 2) -> Batch:
    """Labels of the classes given; the last of them has 3 valid pixels.  Invalid pixels carry any class, or 255."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(count, c, size[0] >> s, size[1] >> s) for c, s in zip(CHANNELS, (4, 3, 2, 1, 0), strict=True)]
    student, teacher = ([torch.randn(s, generator=generator).double() for s in shapes] for _ in range(2))
    chosen = torch.randint(0, max(len(classes) - 1, 1), (count, *size), generator=generator)
    labels = torch.tensor(classes)[chosen]
    valid = torch.rand(labels.shape, generator=generator) < 0.8
    labels[~valid] = torch.randint(0, total, (int((~valid).sum()),), generator=generator)
    labels[:, 0] = 255
    valid[:, 0] = False
    if len(classes) > 1:
        labels[0, 3, [4, 9, 12]] = classes[-1]
        valid[0, 3, [4, 9, 12]] = True
    logits = 2.5 * torch.randn(count, total, *size, generator=generator).double()
    return Batch([f.requires_grad_() for f in student], logits, teacher, labels, valid)


def heads(seed: int = 0) -> tuple[RepresentationHead, RepresentationHead]:
    """A teacher as the trainer makes it: a copy that carries a predictor, which must not be used."""
    torch.manual_seed(seed)
    student, teacher = (RepresentationHead(CHANNELS, DIM, predictor=True).double() for _ in range(2))
    return student, teacher.requires_grad_(False)


def run(loss: Tailness, b: Batch, both: tuple[RepresentationHead, RepresentationHead], **here: Any) -> Tensor:
    where = {"seed": SEED, "step": 0, **here}
    return loss(b.student, b.logits.softmax(1), b.teacher, b.labels, b.valid.float(), *both, **where)


# --- the oracle -------------------------------------------------------------------------------------------------


def dense(head: RepresentationHead, features: list[Tensor], size: tuple[int, int], *, predict: bool) -> Tensor:
    """method 2.3 as convolutions, every level raised to full size in one step: rows B H W x D."""
    raised = [F.interpolate(f, size, mode="bilinear", align_corners=True) for f in features]
    x = raised[0] + F.conv2d(raised[0], head.mix[0].weight[..., None, None])
    for layer, level in zip(head.mix[1:], raised[1:4], strict=True):
        x = torch.cat([x, level], 1)
        x = x + F.conv2d(x, layer.weight[..., None, None])
    x = F.conv2d(torch.cat([x, raised[4]], 1), head.project.weight[..., None, None])
    for layer in head.predictor if predict else ():
        x = F.conv2d(x, layer.weight[..., None, None])
    return x.permute(0, 2, 3, 1).flatten(0, 2)


def philox(index: int, cls: int, step: int, stream: int) -> list[int]:
    c, k0, k1 = [index, cls, step, stream], SEED, 0
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b % 2**32, (a >> 32) ^ c[3] ^ k1, a % 2**32]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c


@dataclass
class Dense:
    """The whole of method 4.2 for several processes, with rings as lists."""

    classes: int
    mode: str
    temperature: float = 0.5
    graph_temperature: float = 0.5
    rings: list[list[Tensor]] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    skipped: int = 0

    def step(
        self, batches: list[Batch], both: tuple[RepresentationHead, RepresentationHead], step: int
    ) -> list[Tensor]:
        student, teacher = both
        self.rings = self.rings or [[] for _ in range(self.classes)]
        self.arrived = self.arrived or [0] * self.classes
        size = tuple(batches[0].labels.shape[1:])
        maps = [dense(teacher, b.teacher, size, predict=False) for b in batches]
        own = [self.pixels(b.labels, b.valid) for b in batches]
        means = []
        for c in range(self.classes):
            rows = torch.cat([m[o[c]] for m, o in zip(maps, own, strict=True)])
            means.append(rows.mean(0) if len(rows) else None)
            for rank, (m, o) in enumerate(zip(maps, own, strict=True)):
                for i in range(min(SMALL["fill"], len(o[c]))):
                    self.push(c, m[o[c][philox(i, c, step, rank * 256)[0] * len(o[c]) // 2**32]])
        return [
            self.loss(r, b, dense(student, b.student, size, predict=True), means, step) for r, b in enumerate(batches)
        ]

    def pixels(self, labels: Tensor, keep: Tensor) -> list[list[int]]:
        pairs = list(zip(labels.flatten().tolist(), keep.flatten().tolist(), strict=True))
        return [[p for p, (label, kept) in enumerate(pairs) if kept and label == c] for c in range(self.classes)]

    def push(self, c: int, row: Tensor) -> None:
        ring, slot = self.rings[c], self.arrived[c] % SMALL["ring"]
        ring[slot : slot + 1] = [row / row.norm()]
        self.arrived[c] += 1

    def loss(self, rank: int, b: Batch, rows: Tensor, means: list[Tensor | None], step: int) -> Tensor:
        chance = b.logits.softmax(1).permute(0, 2, 3, 1).flatten(0, 2)
        hard = [[p for p in own if chance[p, c] < 0.97] for c, own in enumerate(self.pixels(b.labels, b.valid))]
        losses = []
        for c in range(self.classes):
            others = [v for v in range(self.classes) if v != c and means[v] is not None]
            if not hard[c] or not others:
                self.skipped += bool(others) and means[c] is not None
                continue
            graph = [math.exp(F.cosine_similarity(means[c], means[v], dim=0) / self.graph_temperature) for v in others]
            law = [g / sum(graph) for g in graph]
            total = rows.new_zeros(())
            for q in range(SMALL["queries"]):
                query = rows[hard[c][philox(q, c, step, rank * 256 + 1)[0] * len(hard[c]) // 2**32]]
                near = torch.exp(F.cosine_similarity(query, means[c], dim=0) / self.temperature)
                far = self.far(query, c, q, others, law, step, rank)
                total = total - torch.log(near / (near + far))
            losses.append(total / SMALL["queries"])
        return sum(losses) / len(losses) if losses else rows.sum() * 0

    def far(self, query: Tensor, c: int, q: int, others: list[int], law: list[float], step: int, rank: int) -> Tensor:
        def term(key: Tensor) -> Tensor:
            return torch.exp(F.cosine_similarity(query, key, dim=0) / self.temperature)

        if self.mode == "expected":
            means = [sum(map(term, self.rings[v])) / len(self.rings[v]) for v in others]
            return SMALL["keys"] * sum(p * m for p, m in zip(law, means, strict=True))
        total = query.new_zeros(())
        for n in range(SMALL["keys"]):
            index = n if self.mode == "shared" else q * SMALL["keys"] + n
            first, second, *_ = philox(index, c, step, rank * 256 + 2)
            closed = [int(sum(int(p * 2**32) for p in law[: i + 1])) for i in range(len(law) - 1)]
            v = others[sum(t <= first for t in closed)]
            total = total + term(self.rings[v][second * len(self.rings[v]) // 2**32])
        return total


def compare(found: Tensor, expected: Tensor, b: Batch, head: RepresentationHead) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    leaves = [*b.student, *head.parameters()]
    for x, y in zip(*(torch.autograd.grad(loss, leaves) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-9)


# --- equal to it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("classes", [3, 4, 8])
def test_loss_and_every_gradient_are_those_of_the_dense_form(classes: int, mode: str) -> None:
    """Classes come and go, one step has a single class, and in one step all pixels of a class are easy."""
    loss, oracle, both = Tailness(classes, DIM, **SMALL, mode=mode).double(), Dense(classes, mode), heads()
    everything = list(range(classes))
    for step, present in enumerate([[0, classes - 1], everything, [1], everything[1:], everything]):
        b = batch(present, classes, step)
        if step == 3:
            b.logits[:, 1] += 100
        found = run(loss, b, both, step=step)
        compare(found, oracle.step([b], both, step)[0], b, both[0])
        assert (found == 0) == (len(present) == 1)
        assert loss.filled.tolist() == [len(r) for r in oracle.rings]
    assert oracle.skipped == 1 and max(oracle.arrived) > SMALL["ring"]


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_and_the_graph_have_temperatures_of_their_own(mode: str) -> None:
    warmth = {"temperature": 0.3, "graph_temperature": 0.8}
    loss, oracle = Tailness(4, DIM, **SMALL, **warmth, mode=mode).double(), Dense(4, mode, **warmth)
    b, both = batch([0, 1, 2, 3], 4, 0), heads()
    compare(run(loss, b, both), oracle.step([b], both, 0)[0], b, both[0])


class Together(SingleProcess):
    """Processes as threads that meet at a barrier."""

    def __init__(self, rank: int, size: int, barrier: Barrier, shelf: dict[int, Tensor]) -> None:
        self.rank, self.size, self.barrier, self.shelf = rank, size, barrier, shelf

    def gather(self, rows: Tensor) -> Tensor:
        self.shelf[self.rank] = rows.detach()
        self.barrier.wait(30)
        out = torch.cat([self.shelf[r] for r in range(self.size)])
        self.barrier.wait(30)
        return out

    def total(self, numbers: Tensor) -> Tensor:
        return self.gather(numbers[None]).sum(0)


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_share_means_and_rings_and_draw_for_themselves(mode: str) -> None:
    """Each has a class the other lacks; both send rows of class 1, and rings of 12 go round."""
    loss, oracle, both = [Tailness(4, DIM, **SMALL, mode=mode).double() for _ in range(2)], Dense(4, mode), heads()
    barrier, shelf = Barrier(2), {}
    for step in range(3):
        batches = [batch(present, 4, 10 * step + r) for r, present in enumerate([[0, 1, 2], [3, 1, 0]])]
        found: dict[int, Tensor] = {}

        def work(r: int, step: int = step, batches: list[Batch] = batches, found: dict[int, Tensor] = found) -> None:
            found[r] = run(loss[r], batches[r], both, step=step, processes=Together(r, 2, barrier, shelf))

        threads = [Thread(target=work, args=(r,)) for r in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for r, expected in enumerate(oracle.step(batches, both, step)):
            compare(found[r], expected, batches[r], both[0])
    assert all(torch.equal(a, b) for a, b in zip(loss[0].buffers(), loss[1].buffers(), strict=True))


def test_more_rows_than_a_ring_holds() -> None:
    """The last ones stay, each in its place, as if they had come one after another."""
    loss, both, b = Tailness(3, DIM, ring=5, fill=13).double(), heads(), batch([0, 1, 2], 3, 0)
    slow = Tailness(3, DIM, ring=13, fill=13).double()
    run(loss, b, both), run(slow, b, both)
    assert loss.filled.tolist() == [5, 5, 3] and loss.next_slot.tolist() == [3, 3, 3]
    assert torch.equal(loss.rings[:2, [3, 4, 0, 1, 2]], slow.rings[:2, 8:13])
    assert torch.equal(loss.rings[2, :3], slow.rings[2, :3])


# --- what is drawn ----------------------------------------------------------------------------------------------


class Spy:
    """Stands in for `contrast` and keeps what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor, Tensor, dict[str, Any]]] = []

    def on(self, loss: Tailness) -> Tailness:
        real = loss.ops.contrast

        def contrast(queries: Tensor, active: Tensor, means: Tensor, rings: Tensor, **rest: Any) -> Tensor:
            self.seen.append((queries.detach(), active, rings.clone(), rest))
            return real(queries, active, means, rings, **rest)

        loss.ops = loss.ops._replace(contrast=contrast)
        return loss


@pytest.mark.parametrize("mode", MODES)
def test_no_row_of_zeros_is_ever_a_key(mode: str) -> None:
    """Sixty steps with any set of classes, among them steps with dead teacher features; class 7 is never seen."""
    spy, both = Spy(), heads()
    loss = spy.on(Tailness(8, DIM, **{**SMALL, "ring": 64}, mode=mode).double())
    generator = torch.Generator().manual_seed(0)
    active_steps = 0
    for step in range(60):
        present = torch.randperm(7, generator=generator)[: 1 + step % 5].tolist()
        b = batch(present, 8, step, size=(16, 16), count=1)
        if step in (3, 23):
            b.teacher = [torch.zeros_like(f) for f in b.teacher]
        value = run(loss, b, both, step=step)
        assert value.isfinite()
        _, active, rings, rest = spy.seen[-1]
        active_steps += bool(active.any())
        if mode != "expected":
            assert (rest["drawn"][active] >= 0).all()
            used = rings.flatten(0, 1)[rest["drawn"][active]]
        else:
            assert not rest["law"][:, rest["filled"] == 0].any() and not rest["law"].diagonal().any()
            assert rest["law"][active].sum(1).allclose(torch.ones((), dtype=torch.float64))
            used = torch.cat([ring[:n] for ring, n in zip(rings, rest["filled"], strict=True)])
        torch.testing.assert_close(used.norm(dim=-1), torch.ones(used.shape[:-1], dtype=used.dtype))
    assert active_steps > 40 and loss.filled[7] == 0 and (loss.filled[:7] > 40).all()


def test_same_seed_same_draws_and_every_process_its_own() -> None:
    spy, both, b = Spy(), heads(), batch([0, 1, 2], 3, 0)
    second = SingleProcess()
    second.rank = 1
    for here in ({}, {}, {"processes": second}, {"step": 1}, {"seed": SEED + 1}):
        loss = spy.on(Tailness(3, DIM, **SMALL).double())
        run(loss, b, both, **here)
    (queries, _, rings, rest), same, *others = spy.seen
    keys = rest["drawn"]
    assert torch.equal(queries, same[0]) and torch.equal(rings, same[2]) and torch.equal(keys, same[3]["drawn"])
    for other in others:
        assert all(not torch.equal(queries[c], other[0][c]) for c in range(3))
        assert not torch.equal(rings, other[2]) and not torch.equal(keys, other[3]["drawn"])


def test_queries_are_hard_pixels_only() -> None:
    """Student features that say where a pixel is: probability just below and just above the bound."""
    spy = Spy()
    head = RepresentationHead((1,), 1)
    torch.nn.init.ones_(head.project.weight)
    place = torch.arange(1.0, 65).view(1, 1, 8, 8)
    labels = (torch.arange(64).view(1, 8, 8) % 2).long()
    easy = torch.arange(64).view(8, 8) % 3 == 0
    margin = torch.where(easy, math.log(0.9701 / 0.0299), math.log(0.9699 / 0.0301))
    logits = torch.stack([margin * (labels[0] == c) for c in range(2)])[None]
    loss = spy.on(Tailness(2, 1, queries=500, keys=4, ring=8, fill=4))
    sure = torch.ones(labels.shape)
    sure[0, :, 3] = 0.69
    loss([place], logits.softmax(1), [place], labels, sure, head, head, seed=0, step=0)
    for c in range(2):
        may = (labels[0] == c) & ~easy & (sure[0] > 0.7)
        assert set(spy.seen[0][0][c, :, 0].tolist()) == set(place[0, 0][may].tolist())


# --- what may go wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_contrast_is_zero_with_gradients_of_zero(mode: str) -> None:
    """One class, no valid pixel at all, no hard pixel: gradients exist, for processes average them."""
    both = heads()
    nothing, easy = batch([0, 1, 2], 3, 1), batch([0, 1, 2], 3, 2)
    nothing.valid[:] = False
    easy.logits = 100 * F.one_hot(easy.labels % 3, 3).permute(0, 3, 1, 2).double()
    for b in (batch([1], 3, 0), nothing, easy):
        loss = Tailness(3, DIM, **SMALL, mode=mode).double()
        value = run(loss, b, both)
        grads = torch.autograd.grad(value, [*b.student, *both[0].parameters()])
        assert value == 0 and not any(g.any() for g in grads)


@pytest.mark.parametrize("mode", MODES)
def test_a_broken_step_leaves_no_broken_keys(mode: str) -> None:
    """Half precision may overflow once; the rings would pass that on for steps."""
    loss, both = Tailness(3, DIM, **SMALL, mode=mode).double(), heads()
    steps = [batch([0, 1, 2], 3, step) for step in range(3)]
    steps[1].teacher[0] = torch.full_like(steps[1].teacher[0], torch.inf)
    values = [run(loss, b, both, step=step) for step, b in enumerate(steps)]
    assert [v.isfinite().item() for v in values] == [True, False, True]
    assert loss.filled.tolist() == [10, 10, 6] and loss.rings.isfinite().all()


@pytest.mark.parametrize("mode", MODES)
def test_gradients_reach_the_student_alone(mode: str) -> None:
    loss, (student, teacher), b = Tailness(3, DIM, **SMALL, mode=mode).double(), heads(), batch([0, 1, 2], 3, 0)
    teacher.requires_grad_(True)
    for tensor in (*b.teacher, b.logits):
        tensor.requires_grad_()
    run(loss, b, (student, teacher)).backward()
    assert all(t.grad.any() for t in (*b.student, *student.parameters()))
    assert all(t.grad is None for t in (*b.teacher, b.logits, *teacher.parameters()))
    assert not any(buffer.requires_grad for buffer in loss.buffers())


def test_layouts_and_label_types_do_not_matter() -> None:
    both, b = heads(), batch([0, 1, 2, 3], 4, 0)
    expected = run(Tailness(4, DIM, **SMALL).double(), b, both)
    last = Batch(
        [f.detach().contiguous(memory_format=torch.channels_last) for f in b.student],
        b.logits.contiguous(memory_format=torch.channels_last),
        [f.transpose(2, 3).contiguous().transpose(2, 3) for f in b.teacher],
        b.labels.to(torch.uint8),  # 255 fits
        b.valid,
    )
    torch.testing.assert_close(
        run(Tailness(4, DIM, **SMALL).double(), last, both), expected.detach(), atol=1e-12, rtol=0
    )


def test_rings_are_saved_and_restored() -> None:
    both, first, again = heads(), Tailness(3, DIM, **SMALL).double(), Tailness(3, DIM, **SMALL).double()
    for step in range(3):
        run(first, batch([0, 1, 2], 3, step), both, step=step)
    again.load_state_dict(first.state_dict())
    b = batch([0, 1, 2], 3, 9)
    assert torch.equal(run(first, b, both, step=3), run(again, b, both, step=3))
    assert all(torch.equal(x, y) for x, y in zip(first.buffers(), again.buffers(), strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_autocast_changes_nothing(mode: str) -> None:
    student, teacher = (h.float() for h in heads())
    b = batch([0, 1, 2], 3, 0)
    b.student, b.teacher = ([f.detach().float() for f in fs] for fs in (b.student, b.teacher))
    plain = run(Tailness(3, DIM, **SMALL, mode=mode), b, (student, teacher))
    with torch.autocast("cpu", torch.bfloat16):
        cast = run(Tailness(3, DIM, **SMALL, mode=mode), b, (student, teacher))
        b.student, b.teacher = ([f.bfloat16() for f in fs] for fs in (b.student, b.teacher))
        halves = run(Tailness(3, DIM, **SMALL, mode=mode), b, (student, teacher))
    assert plain.dtype == cast.dtype == halves.dtype == torch.float32
    assert torch.equal(plain, cast)
    torch.testing.assert_close(halves, plain, rtol=0, atol=0.05)


def test_shapes_that_would_broadcast_are_refused() -> None:
    b, both = batch([0, 1, 2], 3, 0), heads()
    with pytest.raises(ValueError, match=r"expected probabilities \(B, 4, H, W\).* found \(2, 3, 16, 32\)"):
        run(Tailness(4, DIM, **SMALL).double(), b, both)
    b.valid = b.valid[:1]
    with pytest.raises(ValueError, match=r"found .*\(1, 16, 32\)"):
        run(Tailness(3, DIM, **SMALL).double(), b, both)


def test_constants_are_those_of_the_method() -> None:
    """method 4.2; the rings of 4.2.8 have 2048 slots of 512 numbers for each class, and get 256 rows a step."""
    t = Tailness(4)
    assert (t.likely, t.hard, t.temperature, t.graph_temperature) == (0.7, 0.97, 0.5, 0.5)
    assert (t.queries, t.keys, t.fill, t.mode) == (256, 512, 256, "shared")
    assert t.rings.shape == (4, 2048, 512)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="shared, exact, expected, found 'nearest'"):
        Tailness(3, mode="nearest")


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor any operation returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize("mode", MODES)
def test_nothing_dense_is_made_forward_or_backward(mode: str) -> None:
    torch.manual_seed(0)
    both = tuple(RepresentationHead(CHANNELS, 48, predictor=True).double() for _ in range(2))
    b, loss = batch([0, 1, 2], 3, 0, size=(64, 64)), Tailness(3, 48, **SMALL, mode=mode).double()
    with Largest() as largest:
        run(loss, b, both).backward()
    assert largest.elements <= max(CHANNELS[-1], 3) * b.labels.numel()  # class masks, and gradients of the finest level
