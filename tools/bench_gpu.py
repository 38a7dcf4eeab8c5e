"""`make bench-gpu`: each op forward and backward on a CUDA device, ours against the reference, eager and compiled.

Results are compared first, and only timed if they agree.  Times are medians by CUDA events after a warm-up (during
which Triton tunes and torch compiles); memory is the peak above what was in use before the call.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import torch
from measuring import console
from rich.table import Table
from torch import Tensor

from mona_kernels.ops import NATIVE, REFERENCE, Ops
from mona_kernels.ops.contrast import MODES
from mona_kernels.ops.sampling import thresholds

Case = Callable[[Ops], list[Tensor]]
CHANNELS = 256, 128, 64, 32, 16  # of the U-Net's levels, coarsest first
DRAW = {"seed": 1, "step": 7, "stream": 0}


def cases(
    device: str, *, batch: int = 6, size: int = 256, classes: int = 4, queries: int = 256, keys: int = 512,
    dim: int = 512, ring: int = 2048,
) -> dict[str, Case]:  # fmt: skip
    """Each op with the inputs of a training step, by default at the paper's scale; it returns results and gradients."""
    torch.manual_seed(0)
    shapes = [(batch, c, size >> level, size >> level) for level, c in zip(range(5)[::-1], CHANNELS, strict=True)]
    channels_last = {"memory_format": torch.channels_last}
    features = [torch.randn(s, device=device).contiguous(**channels_last).requires_grad_() for s in shapes]
    logits = torch.randn(batch, classes, size, size, device=device).contiguous(**channels_last).requires_grad_()
    probabilities = torch.randn_like(logits).mul(3).softmax(1)
    labels = torch.randint(-1, classes, (batch, size, size), device=device)
    confidence = torch.rand(batch, size, size, device=device)
    theta = torch.tensor([[0.9, -0.4, 0.1], [0.4, 0.9, -0.1]], device=device).expand(batch, 2, 3)
    points = torch.nn.functional.affine_grid(theta, list(logits.shape), align_corners=True)
    points = points.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)  # planes, as SamplingGrid has them
    rings = torch.nn.functional.normalize(torch.randn(classes, ring, dim, device=device), dim=2)
    asking = torch.randn(classes, queries, dim, device=device, requires_grad=True)
    means, law = torch.randn(classes, dim, device=device), torch.rand(classes, classes, device=device)
    law = law.fill_diagonal_(0) / law.sum(1, keepdim=True)
    filled, active = torch.full((classes,), ring, device=device), torch.ones(classes, dtype=torch.bool, device=device)
    limits = thresholds(law, filled)
    here = {"likely": 0.3, "hard": 0.97, "fill": queries, "queries": queries, **DRAW}
    found = REFERENCE.census(probabilities, labels, confidence, **here)
    pixels = found.queries.flatten()

    def contrast(mode: str) -> Case:
        if mode == "expected":
            given = {"law": law, "filled": filled, "count": keys}
        else:
            each = queries if mode == "exact" else 1
            given = {"drawn": REFERENCE.draw_keys(limits, filled, keys, ring, queries=each, **DRAW)}
        return lambda ops: with_gradients(
            ops.contrast(asking, active, means, rings, temperature=0.5, mode=mode, **given), [asking]
        )

    return {
        "census": lambda ops: list(ops.census(probabilities, labels, confidence, **here)),
        "draw_keys": lambda ops: [ops.draw_keys(limits, filled, keys, ring, queries=queries, **DRAW)],
        "class_sums": lambda ops: with_gradients(ops.class_sums(features, found.known, classes), features),
        "pyramid_gather": lambda ops: with_gradients(ops.pyramid_gather(features, pixels, (size, size)), features),
        **{f"contrast, {mode}": contrast(mode) for mode in MODES},
        "equivariance": lambda ops: with_gradients(
            ops.equivariance(probabilities, labels > 0, points, logits), [logits]
        ),
    }


def with_gradients(answer: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(0.5, 1.5, answer.numel(), device=answer.device).view(answer.shape)
    return [answer.detach(), *torch.autograd.grad(answer, inputs, weights)]


def compare(case: Case) -> None:
    """Integers exactly; floats to 1e-4 of the largest, because long sums are added in another order."""
    for ours, theirs in zip(case(NATIVE), case(REFERENCE), strict=True):
        if ours.is_floating_point():
            scale = theirs.abs().max().clamp_min(1e-30)
            torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-4)
        else:
            assert torch.equal(ours, theirs)


def cost(call: Callable[[], object], runs: int = 50) -> tuple[float, float]:
    """Median milliseconds and peak megabytes."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    peak = torch.cuda.max_memory_allocated() - before
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for start, end in events:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events), peak / 1e6


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not torch.cuda.is_available():
        print(
            "bench_gpu needs a CUDA device, but there is none; `make bench` measures the CPU kernels", file=sys.stderr
        )
        return 3
    console.print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, 3+3 slices of 256x256, float32")
    table = Table("", "ours", "reference", "ratio", "compiled reference", "ratio", "ours, peak", "reference, peak")
    for name, case in cases("cuda").items():
        compare(case)
        compiled = torch.compile(lambda case=case: case(REFERENCE))
        ours, eager, fused = cost(lambda c=case: c(NATIVE)), cost(lambda c=case: c(REFERENCE)), cost(compiled)
        times = f"{ours[0]:.3f} ms", f"{eager[0]:.3f} ms", f"{eager[0] / ours[0]:.2f}", f"{fused[0]:.3f} ms"
        table.add_row(name, *times, f"{fused[0] / ours[0]:.2f}", f"{ours[1]:.1f} MB", f"{eager[1]:.1f} MB")
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
