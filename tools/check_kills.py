"""Random kills of train, prepare, segment and bench: nothing lost, nothing half-written, the same bits.

    python tools/check_kills.py                         25 kills of each command
    python tools/check_kills.py --kills 5 --only segment --seed 3

A command is timed once, undisturbed.  Then it is started and killed (SIGKILL) after a random share of that time,
repeated as a user would repeat it, killed again, and so on until it ends by itself; what it leaves is compared byte for
byte with the undisturbed result (times apart).  After every kill, files under their final names must be whole.  Of a
bench, all of its processes are killed, or the bench alone, or the row alone, in turn.  Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from helpers import four_commands as four  # noqa: E402 (they lie beside the tests)

BINS = 10  # of the time that a command takes
VICTIMS = ("all", "bench", "row")


@dataclass
class Count:
    """Of one command."""

    name: str
    seconds: float  # undisturbed
    shares: list[float] = field(default_factory=list)  # of it, at which it was killed
    first: int = 0  # kills of a command that began from nothing; the others hit one that went on
    ends: int = 0  # results that were compared
    faults: list[str] = field(default_factory=list)

    def describe(self) -> str:
        bins = [sum(int(min(s, 0.999) * BINS) == n for s in self.shares) for n in range(BINS)]
        times = f"{min(self.shares):.2f} to {max(self.shares):.2f}, median {statistics.median(self.shares):.2f}"
        return (
            f"{self.name:8} {self.seconds:.1f} s undisturbed; {len(self.shares)} kills, {self.first} of a fresh start, "
            f"after {times} of that time, by tenths {bins}; {self.ends} results compared, {len(self.faults)} faults"
        )


def killed(name: str, place: Path, out: Path, seconds: float | None, victim: str) -> bool:
    """Whether there was something to kill after so many seconds (None: leave it alone).

    A bench whose row was killed goes on, and must end well.
    """
    process = four.start(place, *four.words(name, out))
    try:
        said = process.communicate(timeout=seconds)
        if process.returncode != 0:
            raise RuntimeError(f"{name}: exit code {process.returncode}: {said}")
        return False
    except subprocess.TimeoutExpired:
        pass
    rows = four.rows_at_work(out) if name == "bench" else []
    if victim == "row" and rows:
        _kill(rows)
        said = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"bench, whose row was killed: exit code {process.returncode}: {said}")
        return True
    _kill([process.pid, *(rows if victim == "all" else [])])
    process.communicate()
    return True


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def check(name: str, place: Path, outs: Iterator[Path], kills: int, draw: random.Random) -> Count:
    seconds = []
    for out in (next(outs), next(outs)):  # the first may read its programs from the disk
        start = time.monotonic()
        done = four.run(place, *four.words(name, out))
        seconds.append(time.monotonic() - start)
        if done.code != 0:
            raise RuntimeError(f"{name}, undisturbed: {done}")
    count, expected = Count(name, min(seconds)), four.result(name, out)
    while len(count.shares) < kills:
        out, fresh = next(outs), True
        while True:
            last = len(count.shares) == kills
            share = draw.random()
            victim = VICTIMS[len(count.shares) % len(VICTIMS)] if name == "bench" else "all"
            if not killed(name, place, out, None if last else share * count.seconds, victim):
                break
            count.shares.append(share)
            count.first += fresh
            fresh = False
            count.faults += [
                f"{name}, killed at {share:.2f}: {p} is half-written" for p in four.partial(name, out, expected)
            ]
            print(f"{name}: kill {len(count.shares)} of {kills} ({victim}) at {share:.2f}", flush=True)
        count.ends += 1
        count.faults += [f"{name}: {file} differs" for file in four.differing(name, out, expected)]
        count.faults += [f"{name}: {file} was left behind" for file in four.leftovers(out)]
    return count


def folders(root: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        (root / f"out{number}").mkdir()
        yield root / f"out{number}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25, help="of each command")
    parser.add_argument("--only", choices=four.NAMES, nargs="+", default=four.NAMES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        place = four.write_inputs(_made(root / "inputs"))
        outs = folders(root)
        counts = [check(name, place, outs, given.kills, random.Random(f"{given.seed} {name}")) for name in given.only]
    faults = [fault for count in counts for fault in count.faults]
    print(*(count.describe() for count in counts), *faults, sep="\n")
    print(f"{sum(len(count.shares) for count in counts)} kills, {len(faults)} faults")
    return 1 if faults else 0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
