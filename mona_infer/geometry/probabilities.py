"""Probabilities of classes as bytes, whose largest is at every voxel that of the mask's class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mona_kernels.native import Labels

STEPS = 255  # of a probability in a uint8
Logits = NDArray[np.float32]  # slices classes rows columns


def softmax(logits: Logits) -> Logits:
    """Probabilities over axis 1."""
    chances: Logits = logits - logits.max(axis=1, keepdims=True)
    np.exp(chances, out=chances)
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def in_steps(logits: Logits, winner: Labels) -> NDArray[np.uint8]:
    """Probabilities in steps of 1/255, with that of the winner (slices rows columns, class indices) above all others.

    Rounding makes equals of probabilities that differ by less than a step.  The winner is then raised to one step
    above the others, so that whoever takes the largest finds the mask, whatever rule for ties they have.
    """
    classes = logits.shape[1]
    steps: NDArray[np.uint8] = np.empty(logits.shape, np.uint8)
    for n in range(len(logits)):  # one slice at a time: at native size their floats are the largest thing held
        chances = softmax(logits[n : n + 1])[0]
        chances *= STEPS
        steps[n] = np.rint(chances, out=chances)
    rival = np.zeros(winner.shape, np.uint8)
    for c in range(classes):
        np.maximum(rival, steps[:, c], out=rival, where=winner != c)
    rival += 1  # two probabilities above 1/2 there cannot be, so this never passes 255
    for c in range(classes):
        np.maximum(rival, steps[:, c], out=steps[:, c], where=winner == c)
    return steps
