"""The worker that trains: `mona train` and then `mona export` as processes; a training goes on after a restart."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mona_infer.serving.dataset import Dataset
from mona_infer.serving.jobs import CANCELLED, DONE, FAILED, Cancelled, Job, Jobs
from mona_infer.serving.names import without_paths
from mona_infer.serving.runs import Curve, Runs, settings
from mona_infer.serving.segmenting_lane import log, log_bug

LANE = "training"
PROGRAM = [sys.executable, "-m", "mona_infer.serving.child"]
LOOK = 0.5  # seconds between looks at how far it is
PATIENCE = 60.0  # seconds for a training to save its checkpoint, before it is killed
TRAINING_SHARE = 0.97  # of the progress; the rest is the export
ALL_LABELLED = "unet-f"  # the method where no case is left without a label: the others learn from unlabelled scans
SENTENCE = re.compile(r"^mona: (.+)$", re.MULTILINE)


class TrainingLane(threading.Thread):
    def __init__(self, jobs: Jobs, dataset: Dataset | None, runs: Runs, logs: Path, advice: Path) -> None:
        super().__init__(name=LANE, daemon=True)
        self._jobs, self._dataset, self._runs, self._logs, self._advice = jobs, dataset, runs, logs, advice

    def run(self) -> None:
        while jobs := self._jobs.take(LANE, 1, lambda job: None):
            job = jobs[0]
            try:
                self._train(job)
            except Cancelled:
                if not self._jobs.closing:
                    self._jobs.end(job, CANCELLED, "cancelled; what was learned so far stays in its run folder")
                    continue
                self._jobs.leave(job)
                return
            except Exception as error:  # the worker must outlive whatever a job does to it
                log_bug(error)
                self._jobs.end(job, FAILED, "this failed on the server; its log says more")

    def _train(self, job: Job) -> None:
        assert self._dataset is not None
        name = job.about.setdefault("run", self._runs.free_name())
        run = self._runs.folder / name
        self._jobs.start(job, "preparing")
        resumed = (run / "run.toml").exists()
        command = ["train", "--resume", str(run)] if resumed else self._command(job, run)
        curve = Curve(run / "metrics.jsonl")
        job.points.clear()

        def look() -> None:
            steps = int(settings(run).get("steps") or 0)
            for point in curve.read():
                self._jobs.tell(job, job.progress, point=point)
            if steps:
                message = f"step {curve.step} of {steps}"
                self._jobs.tell(job, TRAINING_SHARE * min(1.0, curve.step / steps), message)
            job.check()

        if not self._run(job, command, look):
            return
        self._jobs.tell(job, TRAINING_SHARE, "exporting the model")
        if not self._run(job, ["export", str(run)], job.check):
            return
        self._advise(job, run)
        found = next((r for r in self._runs.all() if r.name == name), None)
        dsc, step = (found.dsc, found.best_step) if found else (None, None)
        self._jobs.end(job, DONE, "done", {"run": name, "model": name, "dsc": dsc, "best_step": step})

    def _advise(self, job: Job, run: Path) -> None:
        """Ask the new network what to label next.  The training counts as done even if that fails."""
        assert self._dataset is not None
        waiting = sum(case.label is None and not case.test for case in self._dataset.cases().values())
        if waiting:
            self._jobs.tell(job, TRAINING_SHARE, "finding what to label next")
            asked = ["label", "next", str(self._dataset.folder.resolve()), "--run", str(run), "--count", str(waiting)]
            code, path = self._call(job, [*asked, "--json", str(self._advice)], job.check)
            if code:
                log.warning("mona label next failed with exit code %s; see %s", code, path.name)

    def _command(self, job: Job, run: Path) -> list[str]:
        assert self._dataset is not None
        asked = job.about
        command = ["train", "--dataset", str(self._dataset.folder.resolve()), "--out", str(run)]
        for option in ("ratio", "preset", "steps", "seed", "method"):
            if asked.get(option) is not None:
                command += [f"--{option}", str(asked[option])]
        training = [case for case in self._dataset.cases().values() if not case.test]
        if asked.get("method") is None and asked.get("ratio") is None and all(case.label for case in training):
            command += ["--method", ALL_LABELLED]
        return command

    def _run(self, job: Job, command: list[str], look: Callable[[], None]) -> bool:
        """Run a command of mona to its end; False, and the job has failed, where the command did."""
        code, path = self._call(job, command, look)
        if code == 0:
            return True
        said = SENTENCE.findall(path.read_text(encoding="utf-8", errors="replace"))
        places = {str(self._runs.folder.resolve()): "runs", **self._places()}
        log.warning("%s %s failed with exit code %s; see %s", job.kind, job.id, code, path.name)
        sentence = without_paths(said[-1], places) if said else f"it ended with exit code {code}"
        self._jobs.end(job, FAILED, sentence)
        return False

    def _call(self, job: Job, command: list[str], look: Callable[[], None]) -> tuple[int, Path]:
        """The exit code of a command of mona, and the file that holds what it printed."""
        path = self._logs / f"{job.id}.log"
        with path.open("ab") as output:
            process = subprocess.Popen(
                [*PROGRAM, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at the server's terminal reaches it through the server
            )
            try:
                while process.poll() is None:
                    look()
                    if self._jobs.closing:
                        raise Cancelled
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK)
                look()
            finally:
                _stop(process)
        return process.returncode, path

    def _places(self) -> dict[str, str]:
        if self._dataset is None:
            return {}
        folder = self._dataset.folder
        return {str(folder.resolve()): "the data set", str(folder): "the data set"}


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that it can save its checkpoint; killed if it takes too long."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        until = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        if process.poll() is None:
            process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
