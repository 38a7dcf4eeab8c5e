"""Pixels against the class means of pairs of images: the local loss of PLC (method 6).

Chaitanya et al., "Local contrastive loss with pseudo-label based self-training for semi-supervised medical image
segmentation", 2023 ("inter").
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def class_means_contrast(maps: Tensor, labels: Tensor, draws: Tensor, *, temperature: float) -> Tensor:
    """Mean over images i != j, organs c, pixels z of c in i, and m in (mean of c in i, mean of c in j) of
    -log(exp(cos(z, m) / t) / sum of exp(cos(z, m') / t) over the means m' of all organs in i and in j).

    maps    B D H W        embeddings; means have a gradient too
    labels  B H W          0 is background and negative is unknown: neither has a mean
    draws   B (C - 1) n    float64 in 0..1, on the CPU: which n pixels of each organ

    One mean over all terms that exist: the published code divides within its loop over images, which makes the first
    of ten images count 18^9 times less than the last.
    """
    count, organs, each = draws.shape
    if maps.ndim != 4 or labels.shape != (len(maps), *maps.shape[2:]) or count != len(maps):
        found = ", ".join(str(tuple(t.shape)) for t in (maps, labels, draws))
        raise ValueError(f"expected maps (B, D, H, W), labels (B, H, W) and draws (B, C - 1, n), found {found}")
    organ = torch.arange(1, organs + 1, device=labels.device)
    mask = labels.flatten(1)[:, None] == organ[:, None]  # B K P
    area = mask.sum(2)
    present = area > 0
    with torch.autocast(maps.device.type, enabled=False):
        rows = maps.float().flatten(2)  # B D P
        means = F.normalize(torch.einsum("bdp,bkp->bkd", rows, mask.float()), dim=2)
        nth = (draws.to(maps.device) * area[..., None]).long() + 1
        places = torch.searchsorted(mask.cumsum(2), nth).clamp_(max=rows.shape[2] - 1)  # of the organ's nth pixel
        pixels = rows.gather(2, places.flatten(1)[:, None].expand(-1, rows.shape[1], -1))
        pixels = F.normalize(pixels.unflatten(2, (organs, each)).permute(0, 2, 3, 1), dim=3)  # B K n D
        logits = torch.einsum("iknd,jcd->iknjc", pixels, means) / temperature
        alone = logits.masked_fill(~present, -torch.inf).logsumexp(4)  # over the means of image j
        image = torch.arange(count, device=maps.device)
        both = torch.logaddexp(alone, alone[image, :, :, image][..., None])  # i k n j: of images j and i
        theirs = logits.diagonal(dim1=1, dim2=4).permute(0, 3, 1, 2)  # i k n j: with the mean of the pixel's own organ
        mine = theirs[image, :, :, image][..., None]
        other = (image[:, None] != image)[:, None]  # i 1 j
        here = present[..., None] & other  # i k j
        in_both = here & present.T
        terms = torch.where(here[:, :, None], both - mine, 0) + torch.where(in_both[:, :, None], both - theirs, 0)
        return terms.sum() / (each * (here.sum() + in_both.sum())).clamp(min=1)
