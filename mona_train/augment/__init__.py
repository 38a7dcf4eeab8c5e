"""Augmentation as batched tensor operations on the device of the batch; all random draws are from one CPU generator.

`geometry` describes where the pixels of a view come from, and composes; `sampling` moves image, label and confidence
with one grid; `weak`, `diffeo` and `equivariance` draw geometries; `intensity` and `cutmix` complete a strong view.
"""

from mona_train.augment.cutmix import Mix, cutmix
from mona_train.augment.diffeo import diffeo
from mona_train.augment.equivariance import Equivariance, equivariance
from mona_train.augment.geometry import Geometry
from mona_train.augment.intensity import ACR, GLCON, Jitter, Strength, apply_jitter, draw_jitter, jitter
from mona_train.augment.sampling import SamplingGrid, View
from mona_train.augment.weak import weak

__all__ = [
    "ACR",
    "GLCON",
    "Equivariance",
    "Geometry",
    "Jitter",
    "Mix",
    "SamplingGrid",
    "Strength",
    "View",
    "apply_jitter",
    "cutmix",
    "diffeo",
    "draw_jitter",
    "equivariance",
    "jitter",
    "weak",
]
