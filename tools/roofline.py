"""The minimum time of a kernel: the bytes it must move over the bandwidth, and its FLOPs over the peak rate.

An estimate, not a measurement.  Bytes count each input read once and each output written once, as with perfect caches;
FLOPs are counted from the equations, at the float32 rate, although most products run on tensor cores.
Cards: NVIDIA's GA102 white paper (RTX 3090), A100 40GB SXM and H100 SXM data sheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from compile_kernels import Launch

CARDS = {  # GB/s, float32 TFLOPS
    "RTX 3090": (936, 35.6),
    "A100": (1555, 19.5),
    "H100": (3350, 67.0),
}

# Bytes and FLOPs as formulas in a kernel's arguments; `x.itemsize` is the size of an element of tensor x.
SCORES = "2 * active.numel * each * number * dim"
QUERIES = "active.numel * each * dim * queries.itemsize"
MAPS = "points.numel // 2 * (classes * (probabilities.itemsize + logits.itemsize{}) + mask.itemsize + 8)"
WORK = {
    "_count": ("total * (8 + 4 + probabilities.itemsize + 2 + 2) + 2 * blocks * classes * 4", "3 * total"),
    "_draw": ("classes * count * (PIXELS * 2 + 8)", "3 * classes * count * PIXELS"),
    "_draw_keys": ("drawn.numel * 8", "drawn.numel * (10 * 8 + 2 * rings)"),
    "_push_down": ("known.numel * 2 + weights.numel * 4", "3 * weights.numel * rows * columns"),
    "_reduce": ("level.numel * level.itemsize + weights.numel * weights.itemsize", "2 * classes * channels * total"),
    "_spread": ("out.numel * out.itemsize + weights.numel * weights.itemsize", "2 * classes * channels * total"),
    "_gather": ("count * channels * (4 * level.itemsize + 4)", "6 * count * channels"),
    "_scatter": ("count * channels * (4 + 4 * 2 * 4)", "10 * count * channels"),
    "_attract": ("queries.numel * queries.itemsize", "4 * queries.numel"),
    "_repel shared": (f"{QUERIES} + drawn.numel * (dim * rows.itemsize + 8)", SCORES),
    "_repel exact": (f"{QUERIES} + drawn.numel * (dim * rows.itemsize + 8)", SCORES),
    "_repel expected": (f"{QUERIES} + number * dim * rows.itemsize", SCORES),
    "_pull shared": (f"2 * {QUERIES} + drawn.numel * (dim * rows.itemsize + 8)", f"{SCORES} * (1 + -(-dim // OUT))"),
    "_pull exact": (f"2 * {QUERIES} + drawn.numel * (dim * rows.itemsize + 8)", f"{SCORES} * (1 + -(-dim // OUT))"),
    "_pull expected": (f"2 * {QUERIES} + number * dim * rows.itemsize", f"{SCORES} * (1 + -(-dim // OUT))"),
    "_divergence": (MAPS.format(""), "30 * logits.numel"),
    "_divergence_backward": (MAPS.format(" + out.itemsize"), "40 * logits.numel"),
}


@dataclass(frozen=True)
class Estimate:
    kernel: str
    bytes: int
    bytes_from: str
    flops: int
    flops_from: str
    microseconds: dict[str, float]  # at least, on each card


def estimates(launches: Iterable[Launch]) -> list[Estimate]:
    found = []
    for launch in launches:
        name, values = launch.kernel.__name__, {}
        for key, value in launch.named().items():
            values[key] = value
            if hasattr(value, "numel"):
                values |= {f"{key}.numel": value.numel(), f"{key}.itemsize": value.element_size()}
        wording = WORK[f"{name} {values['MODE']}" if "MODE" in values else name]
        size, flops = (re.sub(r"[a-zA-Z_]\w*(\.\w+)?", lambda m, v=values: f"{v[m[0]]:_}", text) for text in wording)
        n, f = int(eval(size)), int(eval(flops))
        bounds = {card: round(max(n / (b * 1e3), f / (t * 1e6)), 2) for card, (b, t) in CARDS.items()}
        title = f"{name} {values['MODE']}" if "MODE" in values else name
        found.append(Estimate(title, n, size, f, flops, bounds))
    return found


def show(console: Console, estimates: list[Estimate]) -> None:
    for e in estimates:
        console.print(f"[bold]{e.kernel}[/]", highlight=False)
        console.print(f"  {e.bytes / 1e6:.2f} MB = {e.bytes_from}", highlight=False)
        console.print(f"  {e.flops / 1e6:.1f} MFLOP = {e.flops_from}", highlight=False)
        console.print("  at least " + ", ".join(f"{t} us on {c}" for c, t in e.microseconds.items()), highlight=False)
