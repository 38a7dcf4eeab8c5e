"""The cost of augmentation relative to the network: a strong view of 12 images against one U-Net forward pass.

First checks, on the same batch, that image and label move together; then prints the best of several runs.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from measuring import Cost, cost, show
from torch import Generator, Tensor

from mona_train.augment import ACR, Strength, View, cutmix, diffeo, jitter, weak
from mona_train.networks import UNet

BATCH, SIDE = 12, 256
LIMIT = 0.35  # of a forward pass
EVERY_PART = Strength(colour_probability=1, gamma_probability=1, blur_probability=1)
Maps = tuple[Tensor, Tensor, Tensor]


def strong(generator: Generator, maps: Maps, strength: Strength = ACR, warp: float = 0.5) -> Maps:
    """Image, label and confidence moved and mixed together, and the image jittered."""
    view, mix = moved(generator, maps, warp), cutmix(generator, BATCH, (SIDE, SIDE))
    return jitter(generator, mix.of(view.images), strength), mix.of(view.labels), mix.of(view.confidence)


def moved(generator: Generator, maps: Maps, warp: float) -> View:
    """Weak and diffeomorphic geometry in one resampling."""
    return weak(generator, BATCH, (SIDE, SIDE)).then(diffeo(generator, BATCH, probability=warp)).apply(*maps)


def painted_batch() -> Maps:
    """Smooth regions of four classes, class n painted as n/3."""
    generator = Generator().manual_seed(0)
    rough = torch.rand(BATCH, 4, 6, 6, generator=generator)
    labels = F.interpolate(rough, (SIDE, SIDE), mode="bicubic", align_corners=True).argmax(1)
    return (labels / 3)[:, None], labels, torch.rand(BATCH, SIDE, SIDE, generator=generator)


def check(maps: Maps) -> None:
    """A pixel whose source and all its neighbours are in one class must have the colour of its label."""
    images, labels, _ = maps
    values = labels[:, None].float()
    inner = (F.max_pool2d(values, 3, 1, 1) == -F.max_pool2d(-values, 3, 1, 1))[:, 0]
    for seed in range(4):
        plain = Strength(colour_probability=0, gamma_probability=0, blur_probability=0)
        seen, label, _ = strong(Generator().manual_seed(seed), maps, plain, warp=1)
        _, sound, _ = strong(Generator().manual_seed(seed), (images, inner, maps[2]), plain, warp=1)  # moved as labels
        wrong = ((seen[:, 0] - label / 3).abs() > 2e-3) & sound  # what counts as inside may fade by 1e-3 at the edge
        assert sound.float().mean() > 0.8 and not wrong.any(), f"{int(wrong.sum())} pixels lost their label"


def measure(runs: int) -> dict[str, Cost]:
    maps = painted_batch()
    check(maps)
    net, generator = UNet(4).train(), Generator().manual_seed(0)

    @torch.no_grad()
    def forward() -> object:
        return net(maps[0])

    return {
        "U-Net, one forward pass": cost(forward, max(3, runs // 4)),
        "strong view, every part always": cost(lambda: strong(generator, maps, EVERY_PART, warp=1), runs),
        "strong view, as drawn": cost(lambda: strong(generator, maps), runs),
        "weak view": cost(lambda: weak(generator, BATCH, (SIDE, SIDE)).apply(*maps), runs),
    }


def main(runs: int = 20, threads: int = 2) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = measure(runs)
    finally:
        torch.set_num_threads(before)
    show(f"{BATCH} images of {SIDE}x{SIDE}, {threads} threads; image, label and confidence", found)
    worst = found["strong view, every part always"].best / found["U-Net, one forward pass"].best
    assert worst < LIMIT, f"augmentation takes {worst:.2f} of a forward pass, more than {LIMIT}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    main(**vars(parser.parse_args()))
