"""What the tests of training share: a trainer's state, and hearts as cases."""

from __future__ import annotations

import json

import numpy as np
from torch import Tensor, nn

from helpers.small_runs import slices_of
from mona_infer.volume import Volume
from mona_train.config.schema import Optimiser
from mona_train.data.case import Case
from mona_train.engine.trainer import Trainer
from mona_train.run.checkpoint import weights_hash

SGD = Optimiser()


def state_hash(trainer: Trainer) -> tuple[str, str]:
    """All that a checkpoint holds: weights, teachers, banks, optimisers; and the numbers beside them."""
    tensors, facts = trainer.state()
    return weights_hash(tensors), json.dumps(facts)


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: t.clone() for name, t in module.state_dict().items()}


def case_of(patient: int, order: tuple[int, int, int] = (2, 1, 0)) -> Case:
    """Stored in any `order` of the axes slices, rows and columns; always the same hearts in the world."""
    images, labels = slices_of(patient)
    images[0, 0, :2], labels[0, 0, :2] = (0, 65_535), (0, 3)  # min-max then leaves the rest as it is
    affine = np.zeros((4, 4))
    affine[[2, 1, 0], np.argsort(order)] = 10.0, 1.5, 1.5
    affine[3, 3] = 1
    image, label = (Volume(v.transpose(order), affine) for v in (images, labels))
    return Case(f"heart{patient}", f"heart{patient}", (), lambda: image, lambda: label)
