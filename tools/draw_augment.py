"""One batch of phantom hearts through each augmentation, labels on top, as a PNG to look at."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC
from mona_infer.viewing.pictures import Picture, montage, overlay
from mona_kernels import native
from mona_train.augment import GLCON, Strength, cutmix, diffeo, equivariance, jitter, weak
from mona_train.phantom import phantom

ALWAYS = Strength(colour_probability=1, gamma_probability=1, blur_probability=1)


def hearts(count: int) -> tuple[Tensor, Tensor]:
    """The middle slice of the first hearts: images (B, 1, 256, 256) and labels (B, 256, 256)."""
    images, labels = [], []
    for case in phantom(0, train=count, val=0, test=0):
        if case.name.endswith("frame02"):
            continue
        stack = SliceStack(case.image, CARDIAC)
        truth = stack.slicing.view(case.label.voxels)
        k = int(np.argwhere(truth)[:, 0].mean())
        images.append(stack.read(k, k + 1))
        labels.append(native.resize(np.ascontiguousarray(truth[k : k + 1]), CARDIAC.size, order=0))
    return torch.from_numpy(np.stack(images)), torch.from_numpy(np.concatenate(labels))


def chequered(images: Tensor) -> Tensor:
    """With a line every 16 pixels, so that a warp shows."""
    painted = images.clone()
    painted[..., ::16, :] = 1
    painted[..., ::16] = 1
    return painted


def row(name: str, images: Tensor, labels: Tensor) -> list[tuple[str, Picture]]:
    return [
        (f"{name} #{i}", overlay(image[0].numpy(), label.numpy(), CARDIAC))
        for i, (image, label) in enumerate(zip(images, labels, strict=True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("png", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=8)
    args = parser.parse_args()
    images, labels = hearts(args.count)
    size, generator = (images.shape[-2], images.shape[-1]), torch.Generator().manual_seed(args.seed)
    gentle = weak(generator, len(images), size)
    bent = diffeo(generator, len(images), probability=1, strength=3)
    turned = equivariance(generator, len(images), size)
    mix = cutmix(generator, len(images), size)

    rows = [row("as read", images, labels), row("weak", *gentle.apply(images, labels)[:2])]
    rows.append(row("intensity", jitter(generator, images, ALWAYS), labels))
    rows.append(row("diffeo, strength 3", *bent.apply(chequered(images), labels)[:2]))
    rows.append(row("CutMix", mix.of(images), mix.of(labels)))
    strong = gentle.then(bent).apply(images, labels)
    rows.append(row("strong", jitter(generator, mix.of(strong.images), GLCON), mix.of(strong.labels)))
    rows.append(row("equivariance", *turned.apply(images, labels)[:2]))
    back = turned.then(turned.inverse()).apply(images, labels)
    rows.append(row("there and back", *back[:2]))
    montage(args.png, rows)
    print(f"wrote {args.png}")


if __name__ == "__main__":
    main()
