"""What ACR's student sees in a step: labelled slices and mixed unlabelled ones, or mixtures of both kinds.

The teacher's pseudo-labels are made on a weak view of the unlabelled slices and move with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from mona_infer.errors import InputError
from mona_infer.task import centred
from mona_kernels import Kernels
from mona_kernels.ops import largest_pieces as pieces
from mona_train.augment import Strength, View, bidirectional
from mona_train.data.stream import UnlabelledBatch
from mona_train.losses.unsupervised import IGNORE
from mona_train.methods.bank import UNKNOWN
from mona_train.methods.base import Step
from mona_train.methods.views import Strengths, mixed_view, seen_with, size_of, weak_geometry, weak_view

Largest: TypeAlias = Callable[[Tensor], Tensor]  # of pseudo-labels, the largest piece of each class
LABELLED_TAGS = 1 << 40  # added to the row of a labelled slice: rows count from 0 in both streams


class Seen(NamedTuple):
    images: Tensor  # B 1 H W, as the student sees them
    plain: Tensor  # the same without jitter; labelled images keep theirs
    labels: Tensor  # B H W: labels, or pseudo-labels
    confidence: Tensor  # B H W: 1 where labelled, else the teacher's
    known: Tensor  # B H W, bool: where labelled
    labelled: int  # the first so many images show labelled slices alone
    slices: Tensor  # (B - labelled) x 2: which slices the others show
    target: Tensor | None = None  # B C H W: one-hot labels, and the teacher's probabilities elsewhere


class Views(NamedTuple):
    """What student and teacher see of unlabelled slices (method 5.5): weak views, or strong ones.

    A strong student sees them warped, mixed and jittered.  A strong teacher sees its own jitter of what the student is
    shown; a weak one answers before warp and mixture, and its answer moves with the slices.
    """

    strength: Strength
    student: Strengths = "strong"
    teacher: Strengths = "weak"


def separate(step: Step, views: Views, *, jittered: bool, target: bool = False) -> Seen:
    """Labelled images; then unlabelled ones, warped, mixed with each other by CutMix, and jittered."""
    images, labels = _labelled(step, views.strength if jittered else None)
    batch = _unlabelled(step)
    weak = weak_view(step, batch.images).images
    mixed, taught, confidence, pseudo = _moved(step, weak, views, target=target)
    strong = seen_with(step, mixed, views.student, views.strength)
    n = len(images)
    known = torch.zeros_like(torch.cat([labels, pseudo]), dtype=torch.bool)
    known[:n] = True
    return Seen(
        images=torch.cat([images, strong]),
        plain=torch.cat([images, mixed]),
        labels=torch.cat([labels, pseudo]),
        confidence=torch.cat([torch.ones_like(labels, dtype=torch.float32), confidence]),
        known=known,
        labelled=n,
        slices=torch.stack([batch.rows, batch.rows.roll(-1)], 1),  # CutMix's partner is the next one
        target=torch.cat([_one_hot(labels, taught.shape[1]), taught]) if target else None,
    )


def bcp(
    step: Step,
    views: Views,
    *,
    kernels: Kernels,
    whole: float = 0.0,
    plain: bool = False,
    target: bool = False,
) -> Seen:
    """Bidirectional copy-paste (Bai et al. 2023): every image shows a labelled and an unlabelled slice.

    So that both kinds are in every image and every batch statistic.  Of a pseudo-label, the largest piece of each class
    is kept.  `plain`: pseudo-labels are made on the slices as they are, upright and at their own scale, and moved with
    them; what comes from beyond the plain window has none (IGNORE).
    """
    batch = _unlabelled(step)
    view = weak_view(step, step.labelled.images, step.labelled.labels)
    assert view.labels is not None
    largest = pieces.largest_pieces if kernels == "native" else pieces.reference.largest_pieces
    weak, probabilities, confidence, pseudo = (_upright if plain else _as_seen)(step, batch.images, views, largest)
    counts = len(view.images), len(weak)
    pairs = bidirectional(step.generator, *counts, size_of(weak), whole=whole, device=weak.device)
    mixed = pairs.of(view.images, weak)
    rows = step.labelled.rows
    tags = torch.full((len(view.images),), UNKNOWN, device=weak.device) if rows is None else rows + LABELLED_TAGS
    return Seen(
        images=seen_with(step, mixed, views.student, views.strength),
        plain=mixed,
        labels=pairs.of(view.labels, pseudo),
        confidence=pairs.of(torch.ones_like(view.labels, dtype=torch.float32), confidence),
        known=pairs.known,
        labelled=0,
        slices=torch.stack([tags[pairs.labelled], batch.rows[pairs.unlabelled]], 1),
        target=pairs.of(_one_hot(view.labels, probabilities.shape[1]), probabilities) if target else None,
    )


def _moved(step: Step, weak: Tensor, views: Views, *, target: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weak views as the student's geometry shows them, with the teacher's probabilities (if wanted), confidence and
    pseudo-labels there."""
    if views.teacher == "weak":
        probabilities, confidence, pseudo = _taught(step, weak)
        if views.student == "weak":
            return weak, probabilities, confidence, pseudo
        maps = torch.cat([weak, probabilities], 1) if target else weak
        view = mixed_view(step.generator, maps, pseudo, confidence, augment=step.augment)
        assert view.labels is not None and view.confidence is not None
        return view.images[:, :1], view.images[:, 1:], view.confidence, view.labels
    strong = views.student == "strong"
    shown = mixed_view(step.generator, weak, augment=step.augment).images if strong else weak
    return shown, *_taught(step, seen_with(step, shown, "strong", views.strength))


def _as_seen(step: Step, images: Tensor, views: Views, largest: Largest) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A view of the images, and the teacher's probabilities, confidence and pseudo-labels on it."""
    weak = weak_view(step, images).images
    probabilities, confidence, labels = _taught(step, seen_with(step, weak, views.teacher, views.strength))
    return weak, probabilities, confidence, largest(labels)


def _upright(step: Step, images: Tensor, views: Views, largest: Largest) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same, with the teacher's answer on the plain window moved into the view."""
    canvas, (geometry, window) = size_of(images), weak_geometry(step, images)
    inner = centred(canvas, window)
    shown = seen_with(step, images[(..., *inner)], views.teacher, views.strength)
    probabilities, confidence, labels = _taught(step, shown)
    known = labels.new_full((len(images), *canvas), IGNORE)
    known[(..., *inner)] = largest(labels)
    maps = images.new_zeros(len(images), 1 + probabilities.shape[1], *canvas)
    maps[:, :1], maps[(slice(None), slice(1, None), *inner)] = images, probabilities
    sure = images.new_zeros(len(images), *canvas)
    sure[(..., *inner)] = confidence
    view = geometry.apply(maps, known, sure, size=window, ignore=IGNORE)
    assert view.labels is not None and view.confidence is not None
    return view.images[:, :1], view.images[:, 1:], view.confidence, view.labels


def _unlabelled(step: Step) -> UnlabelledBatch:
    if step.unlabelled is None:
        raise InputError("MONA's fine-tuning needs unlabelled slices; lower --ratio, or use --method unet-f")
    return step.unlabelled


def _labelled(step: Step, strength: Strength | None) -> tuple[Tensor, Tensor]:
    """With a strength: warped and jittered like unlabelled slices, but not mixed."""
    g, images, labels = step.generator, step.labelled.images, step.labelled.labels
    view: View
    if strength is None:
        view = weak_view(step, images, labels)
    else:
        geometry, window = weak_geometry(step, images)
        warp = step.augment.warp(g, len(images), images.device)
        view = (geometry if warp is None else geometry.then(warp)).apply(images, labels, size=window)
    assert view.labels is not None
    return step.augment.appearance(g, view.images, strength), view.labels


def _taught(step: Step, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The teacher's probabilities (B, C, H, W), the largest of them and its class (B, H, W)."""
    with torch.no_grad():
        probabilities = step.teacher["unet"](images).logits.float().softmax(1)
        confidence, labels = probabilities.max(1)
    return probabilities, confidence, labels


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    return F.one_hot(labels, classes).movedim(-1, 1).float()
