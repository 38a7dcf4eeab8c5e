"""Augmentation as batched tensor operations on the device of the batch; all random draws are from one CPU generator.

`geometry` describes where the pixels of a view come from, and composes; `sampling` moves image, label and confidence
with one grid; `weak`, `diffeo` and `equivariance` draw geometries; `intensity` and `cutmix` complete a strong view.
`augmentation` is what stages see of all this: `published` is the paper's, `fitted` a stronger one for slices that are
aligned; `paste` mixes slices.
"""

from mona_train.augment.augmentation import Augmentation
from mona_train.augment.cutmix import Mix, cutmix
from mona_train.augment.diffeo import diffeo
from mona_train.augment.equivariance import Equivariance, equivariance
from mona_train.augment.fitted import Fitted
from mona_train.augment.geometry import Geometry
from mona_train.augment.intensity import ACR, GLCON, Jitter, Strength, apply_jitter, draw_jitter, jitter
from mona_train.augment.paste import Pairs, bidirectional, copy_paste
from mona_train.augment.published import PUBLISHED, Published
from mona_train.augment.sampling import SamplingGrid, View
from mona_train.augment.weak import weak
from mona_train.config.schema import AugmentationKind

__all__ = [
    "ACR",
    "GLCON",
    "PUBLISHED",
    "Augmentation",
    "Equivariance",
    "Fitted",
    "Geometry",
    "Jitter",
    "Mix",
    "Pairs",
    "Published",
    "SamplingGrid",
    "Strength",
    "View",
    "apply_jitter",
    "augmentation_of",
    "bidirectional",
    "copy_paste",
    "cutmix",
    "diffeo",
    "draw_jitter",
    "equivariance",
    "jitter",
    "weak",
]


def augmentation_of(kind: AugmentationKind, *, mirrors: bool = False) -> Augmentation:
    """The augmentation of a run.  `mirrors` also allows mirror images and quarter turns; the published one has them."""
    return PUBLISHED if kind == "published" else Fitted(mirrors)
