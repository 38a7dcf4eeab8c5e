"""Rows as jobs of a cluster, through submitit: `--where slurm`, or `--where local` to rehearse it on this machine.

A job that reaches its time limit or is preempted saves and is queued again; it resumes from its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from mona_infer.errors import InputError
from mona_train.bench.places import KILLED, Job, launch

WHERE = ("here", "local", "slurm")
REQUEUED = 100  # times at most
DAY = 24 * 60  # minutes: a row's time limit unless another is asked for
PATIENCE = 60.0  # seconds that a row has to save before its job is queued again


class RowJob:
    """What a job runs: one `mona train`, for as long as it takes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, words: list[str], log: str, threads: int) -> int:
        # submitit's local jobs share the terminal of the bench, whose Ctrl-C must not reach the row twice
        session = os.environ.get("SUBMITIT_EXECUTOR") == "local"
        self._process = launch(words, Path(log), threads, session=session)
        try:
            return self._process.wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._stop()
            return self._process.wait()

    def checkpoint(self, *args: Any) -> Any:
        """submitit calls this shortly before the time limit, and queues what it returns."""
        import submitit

        if self._process is not None:
            self._stop()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return submitit.helpers.DelayedSubmission(RowJob(), *args)

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)


class Submitit:
    """Jobs of a submitit executor."""

    def __init__(self, where: str, folder: Path, options: dict[str, Any], threads: int) -> None:
        if where == "slurm" and shutil.which("sbatch") is None:
            raise InputError(
                "sbatch was not found, so this is no machine of a Slurm cluster; start this on its login node, "
                "or use --where local to rehearse it here"
            )
        self._executor = _executor(where, folder, options, threads)

    def start(self, words: list[str], log: Path, threads: int) -> Job:
        return Submitted(self._executor.submit(RowJob(), words, str(log.resolve()), threads))


def sbatch_script(folder: Path, options: dict[str, Any], threads: int) -> str:
    """What a row is submitted with; written by submitit, without a cluster at hand."""
    from submitit.slurm.slurm import SlurmExecutor

    with mock.patch.object(SlurmExecutor, "affinity", classmethod(lambda _: 1)):  # it would look for srun
        slurm = _executor("slurm", folder, options, threads)._executor
    return str(slurm._make_submission_file_text(slurm._submitit_command_str, "row"))


def _executor(where: str, folder: Path, options: dict[str, Any], threads: int) -> Any:
    """`options` are submitit's parameters, e.g. slurm_partition=gpu."""
    import submitit

    executor = submitit.AutoExecutor(folder=folder.resolve(), cluster=where, slurm_max_num_timeout=REQUEUED)
    try:
        executor.update_parameters(**{"name": "mona-bench", "timeout_min": DAY, "cpus_per_task": threads, **options})
    except (NameError, TypeError, ValueError, AssertionError) as error:
        raise InputError(f"--slurm: {' '.join(str(error).split())[:300]}") from error
    return executor


class Submitted:
    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> int | None:
        if not self._job.done():
            return None
        try:
            return int(self._job.result())
        except Exception:  # submitit's errors for jobs that were killed or lost have no common class
            return KILLED

    def stop(self) -> None:
        self._job.cancel(check=False)

    def kill(self) -> None:
        self._job.cancel(check=False)


def option(text: str) -> tuple[str, Any]:
    """KEY=VALUE of --slurm; whole numbers are numbers."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"expected --slurm KEY=VALUE, e.g. --slurm slurm_partition=gpu, found {text!r}")
    return key.strip(), int(value) if value.strip().isdigit() else value.strip()
