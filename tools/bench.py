"""`make bench`: checks that all implementations agree, then compares ours with named peers in one run.

Times are the best of several runs; memory is the peak above what was in use before the call; ratios are to the first
row.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import bench_augment
import bench_kernels
import nibabel as nib
import numpy as np
from measuring import console, cost, show
from medpy.metric import binary as medpy
from scipy.ndimage import binary_erosion, distance_transform_edt, gaussian_filter, generate_binary_structure, zoom
from surface_distance import metrics as deepmind

from mona_infer.evaluation.metrics import score_case
from mona_infer.io.nifti import read_nifti
from mona_kernels import native


def ellipsoid(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """An organ: an ellipsoid with radii of a quarter of each axis, deformed by a few voxels of smooth noise."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*[(np.arange(n, dtype=np.float32) - n / 2) / (n / 4) for n in shape], indexing="ij", sparse=True)
    radius = np.sqrt(sum(a**2 for a in axes))
    noise = gaussian_filter(rng.standard_normal(shape, dtype=np.float32), 2)
    return (radius + noise * (3 / (shape[1] / 4) / noise.std()) < 1).astype(np.uint8)


def by_medpy(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[float, ...]:
    return medpy.asd(a, b, spacing), medpy.assd(a, b, spacing), medpy.hd95(a, b, spacing)


def by_scipy(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[float, ...]:
    """What a careful user writes: crop to the joint box, two borders, two distance transforms."""
    where = np.argwhere(a | b)
    box = tuple(slice(lo, hi + 1) for lo, hi in zip(where.min(0), where.max(0), strict=True))
    cross = generate_binary_structure(3, 1)
    edges = [m ^ binary_erosion(m, cross) for m in (a[box].astype(bool), b[box].astype(bool))]
    there = distance_transform_edt(~edges[1], sampling=spacing)[edges[0]]
    back = distance_transform_edt(~edges[0], sampling=spacing)[edges[1]]
    both = np.concatenate([there, back])
    return float(there.mean()), float(both.mean()), float(np.percentile(both, 95))


def by_deepmind(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[float, ...]:
    found = deepmind.compute_surface_distances(b.astype(bool), a.astype(bool), spacing)
    to_reference, back = deepmind.compute_average_surface_distance(found)
    return back, (to_reference + back) / 2, deepmind.compute_robust_hausdorff(found, 95)


def by_mona(a: np.ndarray, b: np.ndarray, spacing: tuple[float, ...]) -> tuple[float | None, ...]:
    score = score_case(a, b, spacing)[1]
    return score.asd, score.assd, score.hd95


def bench_surfaces(quick: bool) -> None:
    sizes = [((10, 256, 216), (10.0, 1.4, 1.4), 7), ((160, 256, 256), (1.0, 1.0, 1.0), 3)]
    sizes += [] if quick else [((300, 512, 512), (1.0, 0.8, 0.8), 1)]
    for shape, spacing, runs in sizes:
        a, b = ellipsoid(shape, 1), ellipsoid(shape, 2)
        rows = {
            "mona": cost(partial(by_mona, a, b, spacing), max(runs, 5)),
            "medpy 0.5.2": cost(partial(by_medpy, a, b, spacing), min(runs, 3)),
            "surface-distance 0.1": cost(partial(by_deepmind, a, b, spacing), runs),
            "crop + scipy": cost(partial(by_scipy, a, b, spacing), runs),
        }
        for peer in ("medpy 0.5.2", "crop + scipy"):  # surface-distance weights by area: a different definition
            np.testing.assert_allclose(rows["mona"].answer, rows[peer].answer, atol=1e-6)
        found = ", ".join(f"{v:.3f}" for v in rows["mona"].answer)
        show(f"ASD + ASSD + HD95 of one organ, {'x'.join(map(str, shape))} (= {found} mm)", rows)


def bench_gzip() -> None:
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.standard_normal((256, 256, 100), dtype=np.float32), 4)
    voxels = (smooth / smooth.std() * 300 + rng.normal(0, 12, smooth.shape)).astype(np.int16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scan.nii.gz"
        image = nib.Nifti1Image(voxels, np.eye(4))
        path.write_bytes(gzip.compress(image.to_bytes(), 6))
        rows = {
            "mona (isal)": cost(lambda: read_nifti(path, budget=1 << 33).voxels, 5),
            "nibabel, stored type": cost(lambda: np.asanyarray(nib.load(path).dataobj.get_unscaled()), 5),
            "nibabel get_fdata()": cost(lambda: nib.load(path).get_fdata(), 3),
        }
        for c in rows.values():
            np.testing.assert_array_equal(c.answer, voxels)
        show(f"reading a .nii.gz of {voxels.nbytes / 1e6:.0f} MB ({path.stat().st_size / 1e6:.0f} MB packed)", rows)


def bench_resize() -> None:
    rng = np.random.default_rng(0)
    slices = rng.random((32, 512, 512), dtype=np.float32)
    for order, name in ((1, "linear"), (0, "nearest")):
        rows = {
            "mona": cost(lambda o=order: native.resize(slices, (256, 256), order=o), 7),
            "scipy.ndimage.zoom": cost(lambda o=order: zoom(slices, (1, 0.5, 0.5), order=o), 3),
        }
        np.testing.assert_allclose(rows["mona"].answer, rows["scipy.ndimage.zoom"].answer, atol=1e-6)
        show(f"32 slices 512x512 -> 256x256, {name}", rows)

    logits = rng.standard_normal((16, 4, 256, 256), dtype=np.float32)
    rows = {
        "mona, fused": cost(lambda: native.argmax_resized(logits, (512, 512), order=1), 7),
        "numpy, resize then argmax": cost(
            lambda: native.resize(logits.reshape(-1, 256, 256), (512, 512), order=1).reshape(16, 4, 512, 512).argmax(1),
            5,
        ),
        "scipy zoom then argmax": cost(lambda: zoom(logits, (1, 1, 2, 2), order=1).argmax(1), 1),
    }
    answers = [c.answer for c in rows.values()]
    assert (answers[0] == answers[1]).all()
    assert (answers[0] != answers[2]).mean() < 1e-5  # scipy interpolates in double: near-ties may differ
    show("16 slices of 4 classes, logits 256x256 -> labels 512x512", rows)


def bench_help() -> None:
    """Not a comparison but a limit: under 0.4 s."""
    for args in (["--help"], ["evaluate", "--help"]):
        times = []
        for _ in range(10):
            start = time.perf_counter()
            subprocess.run([Path(sys.executable).with_name("mona"), *args], stdout=subprocess.DEVNULL, check=True)
            times.append(time.perf_counter() - start)
        console.print(f"mona {' '.join(args)}: median of 10 {statistics.median(times):.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out the CT, which takes medpy minutes")
    args = parser.parse_args()
    console.print(f"{native.cores()} core(s)")
    bench_help()
    bench_gzip()
    bench_resize()
    bench_augment.main()
    bench_kernels.main(quick=args.quick)
    bench_surfaces(args.quick)


if __name__ == "__main__":
    main()
