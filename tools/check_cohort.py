"""A cohort on a local cluster while its workers are killed: is every mask there once, and with the same bytes?

    python tools/check_cohort.py --scans 2000 --workers 2 --kills 20

Small scans (slices of drawn hearts) are segmented by `mona segment FOLDER`, by the same with --cluster, and once more
with --cluster while SIGKILL hits a worker at random moments.  The first two take turns, --repeats times; what is
compared is seconds of the clock and of the processor, with all child processes (of other programs, the clock says more
than of this one where the machine is busy).  Exit code 1 if a mask differs, lacks or is there twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MONA = Path(sys.executable).with_name("mona")
BASES = 12  # hearts that are drawn; every scan is a few slices of one, moved by pixels of its own


@dataclass(frozen=True)
class Run:
    code: int
    wall: float  # seconds
    processor: float  # seconds, with all child processes
    kills: int
    output: str


def write_scans(folder: Path, count: int, slices: int = 3) -> None:
    import nibabel as nib
    import numpy as np

    from mona_train.phantom import heart

    folder.mkdir(parents=True, exist_ok=True)
    hearts = [heart(patient, "ED") for patient in range(1, min(BASES, count) + 1)]
    for n in range(count):
        image = hearts[n % len(hearts)].image
        middle = image.voxels.shape[2] // 2 - slices // 2
        voxels = np.roll(image.voxels[:, :, middle : middle + slices], n // len(hearts), axis=0)
        nib.save(nib.Nifti1Image(voxels, image.affine), folder / f"scan{n:05d}.nii.gz")


def workers_of(process: int) -> list[int]:
    """The Dask workers among the children of a command: what multiprocessing has spawned."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process and b"spawn_main" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, IndexError, ValueError):  # it has ended meanwhile
            continue
    return found


def segment(
    scans: Path | str,
    out: Path | str,
    *options: str,
    kills: int = 0,
    pause: float = 0.0,
    seed: int = 0,
    env: dict[str, str] | None = None,
    begun: Callable[[], bool] | None = None,
) -> Run:
    """`mona segment`, and so many SIGKILLs for its workers, `pause` seconds apart on average, once there is a mask."""
    dice, done = random.Random(seed), 0
    words = [str(MONA), "segment", str(scans), "--out", str(out), *options]
    with tempfile.TemporaryFile("w+") as told:
        start = time.perf_counter()
        process = subprocess.Popen(words, stdout=told, stderr=subprocess.STDOUT, env=env)
        strike = 0.0
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if done < kills and (begun() if begun else any(Path(out).glob("*.nii.gz"))):
                strike = strike or time.perf_counter() + dice.uniform(0, 2 * pause)
                if time.perf_counter() >= strike and (there := workers_of(process.pid)):
                    os.kill(dice.choice(there), signal.SIGKILL)
                    done, strike = done + 1, 0.0
            time.sleep(0.05)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        told.seek(0)
        return Run(process.returncode, wall, ended[2].ru_utime + ended[2].ru_stime, done, told.read())


def masks(folder: Path) -> dict[str, str]:
    """Every file below a folder, whatever its name, by the hash of its bytes."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=2000)
    parser.add_argument("--slices", type=int, default=3, help="of each scan")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--model", default="acdc-5pc")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    options = ["--model", asked.model, "--force"]
    cluster = [*options, "--cluster", f"local:{asked.workers}"]
    report: dict[str, object] = {"scans": asked.scans, "slices": asked.slices, "workers": asked.workers}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_scans(place / "scans", asked.scans, asked.slices)
        runs: dict[str, list[Run]] = {"one process": [], "cluster": []}
        for n in range(asked.repeats):
            runs["one process"].append(segment(place / "scans", place / f"one{n}", *options))
            runs["cluster"].append(segment(place / "scans", place / f"many{n}", *cluster))
        wanted = masks(place / "one0")
        pause = min(run.wall for run in runs["cluster"]) * 0.8 / max(1, asked.kills)
        killed = segment(place / "scans", place / "killed", *cluster, kills=asked.kills, pause=pause, seed=asked.seed)
        for name, several in runs.items():
            report[name] = [{"wall": round(r.wall, 1), "processor": round(r.processor, 1)} for r in several]
        for unit in ("wall", "processor"):
            one, many = (min(getattr(run, unit) for run in runs[name]) for name in ("one process", "cluster"))
            report[f"overhead, {unit}"] = f"{100 * (many / one - 1):+.1f} %"
        report["killed"] = {"kills": killed.kills, "code": killed.code, "wall": round(killed.wall, 1)}
        report["masks"] = {
            "wanted": asked.scans,
            "one process": len(wanted),
            "cluster, the same bytes": masks(place / "many0") == wanted,
            "killed, the same bytes": masks(place / "killed") == wanted,
        }
        good = len(wanted) == asked.scans == len(masks(place / "killed"))
        good &= masks(place / "many0") == masks(place / "killed") == wanted
        good &= all(run.code == 0 for several in runs.values() for run in several) and killed.code == 0
        if not good:
            print(killed.output[-3000:], file=sys.stderr)
    print(json.dumps(report, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
