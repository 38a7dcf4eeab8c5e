"""Random kills of train, prepare, segment and bench: nothing lost, nothing half-written, the same bits.

    python tools/check_kills.py                         25 kills of each command
    python tools/check_kills.py --kills 5 --only segment --seed 3

A command's processor time is measured once, undisturbed.  Then it is started and killed (SIGKILL) after a random share
of that time, repeated as a user would repeat it, killed again, and so on until it ends by itself; what it leaves is
compared byte for byte with the undisturbed result (times apart).  After every kill, files under their final names must
be whole.  Of a bench, all of its processes are killed, or the bench alone, or the row alone, in turn.  Commands are
forks of a process that has imported everything, so that kills hit their work and not their imports.  Exit code 1 if
anything differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from helpers import four_commands as four  # noqa: E402 (they lie beside the tests)
from helpers.forked import Forked, processor, rows  # noqa: E402

BINS = 10  # of the time that a command takes
LOOK = 0.01  # seconds between looks at how far it is
VICTIMS = ("all", "bench", "row")


@dataclass
class Count:
    """Of one command."""

    name: str
    seconds: float  # of the processor, undisturbed
    shares: list[float] = field(default_factory=list)  # of it, at which it was killed
    resumed: int = 0  # kills of a command that went on where another was killed
    ends: int = 0  # results that were compared
    faults: list[str] = field(default_factory=list)

    def describe(self) -> str:
        bins = [sum(int(min(s, 0.999) * BINS) == n for s in self.shares) for n in range(BINS)]
        middle = statistics.median(self.shares or [0.0])
        return (
            f"{self.name}: {self.seconds:.2f} s of processor undisturbed; {len(self.shares)} kills, {self.resumed} of "
            f"them of a repeated command, median at {middle:.2f} of that time, by tenths "
            f"{bins}; {self.ends} results compared; {len(self.faults)} faults"
        )


class Check:
    def __init__(self, name: str, place: Path, root: Path, seed: int, end: float) -> None:
        self._name, self._place, self._root, self._end = name, place, root, end
        self._draw = random.Random(f"{seed} {name}")
        self._outs = 0
        process, out = self._started(self._next())
        self._checked(process)
        self.count, self._expected = Count(name, process.processor), four.result(name, out)

    def run(self, kills: int) -> Count:
        """So many kills, or fewer if the time is over; every chain of kills ends with a command that is left alone."""
        while len(self.count.shares) < kills and time.monotonic() < self._end:
            out, repeated = self._next(), False
            while self._killed(out, last=len(self.count.shares) >= kills or time.monotonic() > self._end):
                self.count.resumed += repeated
                repeated = True
                halves = four.partial(self._name, out, self._expected)
                self._faults(f"is half-written after a kill at {self.count.shares[-1]:.2f}", halves)
                print(f"{self._name}: kill {len(self.count.shares)} at {self.count.shares[-1]:.2f}", flush=True)
            self.count.ends += 1
            self._faults("differs", four.differing(self._name, out, self._expected))
            self._faults("was left behind", four.leftovers(out))
        return self.count

    def _killed(self, out: Path, *, last: bool) -> bool:
        """Whether it was killed, and not done before that."""
        share = 2.0 if last else self._draw.random()
        victim = VICTIMS[len(self.count.shares) % len(VICTIMS)] if self._name == "bench" else "all"
        process, _ = self._started(out)
        while process.poll() is None:
            at_work = rows() if self._name == "bench" else []
            reached = processor([process.pid, *at_work]) / self.count.seconds
            if reached < share or (victim == "row" and not at_work):
                time.sleep(LOOK)
                continue
            _kill({"all": [process.pid, *at_work], "bench": [process.pid], "row": at_work}[victim])
            self.count.shares.append(reached)
            process.wait()
            if victim == "row":  # the bench goes on, and ends well
                self._checked(process)
            return True
        self._checked(process)
        return False

    def _started(self, out: Path) -> tuple[Forked, Path]:
        return four.start(self._place, *four.words(self._name, out)), out

    def _checked(self, process: Forked) -> None:
        said = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{self._name}: exit code {process.returncode}: {said}")

    def _faults(self, what: str, files: list[str]) -> None:
        for file in files:
            self.count.faults.append(f"{self._name}: {file} {what}")
            print(self.count.faults[-1], flush=True)

    def _next(self) -> Path:
        self._outs += 1
        out = self._root / f"{self._name}{self._outs}"
        out.mkdir()
        return out


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25, help="of each command")
    parser.add_argument("--only", choices=four.NAMES, nargs="+", default=four.NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="commands side by side")
    parser.add_argument("--minutes", type=float, default=600, help="begin no new kill after that")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "inputs").mkdir()
        place = four.write_inputs(root / "inputs")

        def check(name: str) -> Count:
            return Check(name, place, root, given.seed, end).run(given.kills)

        with ThreadPoolExecutor(given.jobs) as pool:
            counts = list(pool.map(check, given.only))
    print(*(count.describe() for count in counts), sep="\n")
    faults = sum(len(count.faults) for count in counts)
    print(f"{sum(len(count.shares) for count in counts)} kills, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
