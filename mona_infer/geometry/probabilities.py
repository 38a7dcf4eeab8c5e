"""Class probabilities as bytes; at every voxel, the mask's class has the largest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mona_kernels.native import Labels

STEPS = 255  # a probability of 1 as a uint8
Logits = NDArray[np.float32]  # slices classes rows columns


def softmax(logits: Logits) -> Logits:
    """Probabilities over axis 1."""
    probabilities: Logits = logits - logits.max(axis=1, keepdims=True)
    np.exp(probabilities, out=probabilities)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


def in_steps(logits: Logits, winner: Labels) -> NDArray[np.uint8]:
    """Probabilities in steps of 1/255, where the winner (slices rows columns, class indices) is above all others.

    Rounding ties probabilities that differ by less than a step.  The winner is then raised to one step above the
    others, so that an argmax always gives the mask, however it breaks ties.
    """
    classes = logits.shape[1]
    steps: NDArray[np.uint8] = np.empty(logits.shape, np.uint8)
    for n in range(len(logits)):  # one slice at a time: at native size the floats need the most memory
        probabilities = softmax(logits[n : n + 1])[0]
        probabilities *= STEPS
        steps[n] = np.rint(probabilities, out=probabilities)
    rival = np.zeros(winner.shape, np.uint8)
    for c in range(classes):
        np.maximum(rival, steps[:, c], out=rival, where=winner != c)
    rival += 1  # two probabilities cannot both exceed 1/2, so this never exceeds 255
    for c in range(classes):
        np.maximum(rival, steps[:, c], out=steps[:, c], where=winner == c)
    return steps
