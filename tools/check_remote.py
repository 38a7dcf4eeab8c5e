"""A cohort from and to an S3 store that fails a share of its answers: is every mask there, whole, with the same bytes?

    python tools/check_remote.py --scans 200 --share 0.5
    python tools/check_remote.py --scans 200 --share 0.5 --workers 2 --kills 10

moto serves S3 on loopback behind a program that fails its answers by a seeded draw: 500, 503, a proxy's page, an answer
that is lost after the request was carried out, a connection that is reset, and bodies that end early, are short or have
a wrong byte (tests/helpers/faulty_store.py).  The masks are compared with those of `mona segment FOLDER`, and while the
command runs, every object that appears in the folder of masks is read at once: it must be the whole mask.
Exit code 1 if a mask differs, lacks or was partial, or if an upload was left unfinished.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from check_cohort import Run, masks, segment, write_scans

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.faulty_store import BUCKET, Store, store

LOOK = 1.0  # seconds between looks at the masks in the store
PAUSE = 3.0  # seconds between kills, on average


def digests(shop: Store, known: frozenset[str] = frozenset()) -> dict[str, str]:
    """Of all objects in the folder of masks that are not known yet."""
    names = [key.removeprefix("masks/") for key in shop.keys("masks/")]
    return {name: hashlib.sha256(shop.get(f"masks/{name}")).hexdigest() for name in names if name not in known}


class Watch(threading.Thread):
    """Looks for masks that are not whole."""

    def __init__(self, shop: Store, wanted: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._shop, self._wanted, self._end = shop, wanted, threading.Event()
        self.partial: set[str] = set()
        self.whole: set[str] = set()
        self.looks = 0

    def run(self) -> None:
        while not self._end.wait(LOOK):
            found = digests(self._shop, frozenset(self.whole))
            self.partial |= {name for name, digest in found.items() if digest != self._wanted.get(name)}
            self.whole |= found.keys() - self.partial
            self.looks += 1

    def stop(self) -> None:
        self._end.set()
        self.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=200)
    parser.add_argument("--slices", type=int, default=3, help="of each scan")
    parser.add_argument("--share", type=float, default=0.5, help="of the answers that fail")
    parser.add_argument("--workers", type=int, default=0, help="of a local cluster; 0: one process")
    parser.add_argument("--kills", type=int, default=0, help="of workers, by SIGKILL at random moments")
    parser.add_argument("--model", default="acdc-5pc")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    options = ["--model", asked.model, "--force"]
    with tempfile.TemporaryDirectory() as folder, store(asked.seed) as shop:
        place = Path(folder)
        write_scans(place / "scans", asked.scans, asked.slices)
        for path in (place / "scans").iterdir():
            shop.put(f"scans/{path.name}", path.read_bytes())
        local = segment(place / "scans", place / "masks", *options)
        wanted = masks(place / "masks")
        os.environ |= shop.env
        shop.faults.share = asked.share
        watch = Watch(shop, wanted)
        watch.start()
        cluster = ["--cluster", f"local:{asked.workers}"] if asked.workers else []
        runs: list[Run] = []
        begun = time.perf_counter()
        while not runs or (runs[-1].code == 1 and len(runs) < 3):  # what failed is what a repeated command does
            words = (f"s3://{BUCKET}/scans", f"s3://{BUCKET}/masks", *options, *cluster)
            kills = 0 if runs else asked.kills
            runs.append(segment(*words, kills=kills, pause=PAUSE, seed=asked.seed, begun=lambda: bool(watch.whole)))
        wall = time.perf_counter() - begun
        watch.stop()
        found, left = digests(shop), len(shop.unfinished())
        report = {
            "scans": asked.scans,
            "local": {"wall": round(local.wall, 1), "processor": round(local.processor, 1)},
            "store": {"wall": round(wall, 1), "processor": round(sum(run.processor for run in runs), 1)},
            "commands until exit code 0": len(runs) if runs[-1].code == 0 else None,
            "workers killed": sum(run.kills for run in runs),
            "requests": shop.faults.asked,
            "failed": dict(sorted(shop.faults.failed.items())),
            "share that failed": round(shop.faults.failed.total() / max(1, shop.faults.asked), 3),
            "masks": {"wanted": asked.scans, "local": len(wanted), "store": len(found), "the same": found == wanted},
            "partial": sorted(watch.partial),
            "looks": watch.looks,
            "unfinished uploads": left,
        }
    print(json.dumps(report, indent=1))
    good = found == wanted and len(wanted) == asked.scans and not watch.partial and not left and runs[-1].code == 0
    if not good:
        print(runs[-1].output[-3000:], file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
