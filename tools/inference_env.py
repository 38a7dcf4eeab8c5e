"""Build the inference environment without torch (`pip install .[cpu]` into a new venv) and use it.

    python tools/inference_env.py [MODEL.onnx] [--keep FOLDER]

Segments a 10x256x216 volume there and evaluates the mask, checks that torch is not installed, and prints the
environment's size in MB and the time of `mona segment`, including process start: the median of several runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

from mona_infer import Volume
from mona_infer.io.nifti import write_nifti

ROOT = Path(__file__).parents[1]
SHAPE, SPACING = (216, 256, 10), (1.4, 1.4, 10.0)  # an ACDC scan: columns, rows, slices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="default: the best that comes with mona")
    parser.add_argument("--keep", type=Path, help="build the environment in this folder and keep it")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        report = build_and_use(options.keep or Path(temporary) / "venv", options.model, Path(temporary), options.runs)
    print(report)


def build_and_use(folder: Path, model: Path | None, work: Path, runs: int) -> str:
    venv.create(folder, with_pip=True)
    python, mona = folder / "bin" / "python", folder / "bin" / "mona"
    bare = _megabytes(folder)
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROOT}[cpu]")
    packages = _run(python, "-m", "pip", "list", "--format=freeze")
    if any(line.partition("==")[0] in ("torch", "triton", "onnx") for line in packages.splitlines()):
        sys.exit(f"the inference environment holds what only training needs:\n{packages}")
    scan, mask = work / "scan.nii.gz", work / "mask.nii.gz"
    write_nifti(scan, _volume())
    chosen = ["--model", model] if model else []
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        _run(mona, "segment", scan, "--out", mask, "--overwrite", *chosen)
        times.append(time.perf_counter() - start)
    _run(mona, "evaluate", mask, mask)
    size = _megabytes(folder)
    return (
        f"{size:.0f} MB ({size - bare:.0f} MB beside Python and pip); `mona segment` on 10x256x216, start included: "
        f"{statistics.median(times):.2f} s (median of {runs}, best {min(times):.2f} s)"
    )


def _volume() -> Volume:
    """Blobs and noise: something to segment that compresses about as well as a scan."""
    rng = np.random.default_rng(0)
    coarse = rng.random(tuple(n // 8 + 1 if n > 8 else n for n in SHAPE))
    smooth = coarse.repeat(8, 0).repeat(8, 1).repeat(8, 2)[: SHAPE[0], : SHAPE[1], : SHAPE[2]]
    voxels = np.asfortranarray(1000 * smooth + rng.normal(0, 20, SHAPE)).astype(np.int16)
    return Volume(voxels, np.diag([-SPACING[0], -SPACING[1], SPACING[2], 1.0]))


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def _run(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
