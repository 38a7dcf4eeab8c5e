"""Real commands in processes of their own, without seconds of imports for each.

One process imports everything that `mona` may need and then waits; a command is a fork of it.  It can be killed,
frozen and limited like any other.  A bench forks its rows, too, instead of starting Python for them.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

TESTS = Path(__file__).parents[1]
IMPORTED = (
    *("torch", "torch.utils.tensorboard", "lightning_fabric", "safetensors.torch", "onnxruntime", "PIL.Image"),
    *("rich.live", "mona_infer.cli.main", "mona_infer.cli.segment", "mona_infer.segmenting.pipeline"),
    *("mona_infer.segmenter", "mona_infer.engines.onnx", "mona_train.cli.train", "mona_train.cli.bench"),
    *("mona_train.cli.data", "mona_train.data.prepare", "mona_train.engine.session", "mona_train.engine.profile"),
    *("mona_train.bench.runner", "mona_train.bench.dry_run", "mona_train.data.adapters", "mona_train.run.results"),
)


class Forked:
    """A command, with the part of Popen's interface that tests use."""

    def __init__(self, pid: int, parent: Parent, files: list[Path]) -> None:
        self.pid, self._parent, self._files = pid, parent, files
        self.returncode: int | None = None
        self.processor = 0.0  # seconds that it took, with its rows, once it has ended
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("mona", timeout or 0)
            os.close(self._handle)
            self.returncode, self.processor = self._parent.ask(ended=self.pid)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        out, err = (path.read_text() if path.exists() else "" for path in self._files)
        return out, err


class Parent:
    """The process that has imported everything; it ends with this one."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mona-forked-")  # it goes with this process
        self._files = Path(self._folder.name)
        self._count, self._asking = 0, threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "helpers.forked", str(os.getpid())],
            env={**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        self.ask(ready=True)  # it has imported everything
        return self._process.pid

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._asking:
            print(json.dumps(request), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def start(self, place: Path, words: list[str], group: Path | None = None, call: str = "") -> Forked:
        """group: of the kernel's memory limits, for the command to join; call: a function to call with the place."""
        self._count += 1
        files = [self._files / f"{self._count}.{name}" for name in ("out", "err")]
        join = str(group / "cgroup.procs") if group else ""
        pid = self.ask(words=words, place=str(place), files=[*map(str, files)], join=join, call=call)
        return Forked(pid, self, files)


@cache
def parent() -> Parent:
    return Parent()


def rows(client: int | None = None) -> list[int]:
    """The rows that benches of this process train now."""
    name, found = f"row {client or os.getpid()}", []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == name and " Z " not in (entry / "stat").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def processor(pids: list[int]) -> float:
    """Seconds that these processes, and their children that have ended, have taken so far."""
    ticks = 0
    for pid in pids:
        try:
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:  # ended
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


# ---- in the process that forks


def serve(client: int) -> dict[str, Any]:
    """Answers requests; returns, in the fork, the one that it is for."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            _, status, used = os.wait4(request["ended"], 0)
            ended = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]
            print(json.dumps(ended), file=answers, flush=True)
        elif "ready" in request:
            print("true", file=answers, flush=True)
        elif (pid := os.fork()) == 0:
            answers.close()
            return request
        else:
            print(pid, file=answers, flush=True)
    answers.close()
    os._exit(0)


def become(client: int, request: dict[str, Any]) -> None:
    """The command itself."""
    os.setsid()
    _outputs(*request["files"])
    if request["join"]:
        Path(request["join"]).write_text(str(os.getpid()))
    os.chdir(request["place"])
    if request["call"]:
        module, _, name = request["call"].partition(":")
        _end_with(lambda: getattr(importlib.import_module(module), name)(Path(request["place"])))
    from mona_train.bench import places

    places.launch = lambda words, log, threads: Row(client, words, log)  # type: ignore[assignment]
    _end_with(lambda: _mona(request["words"]))


def _mona(words: list[str]) -> None:
    from mona_infer.cli.main import main

    sys.argv = ["mona", *words]
    main()


def _end_with(work: Callable[[], None]) -> NoReturn:
    """Do it, and end as Python does, but for C libraries: ONNX Runtime waits for a thread that no fork has."""
    code = 0
    try:
        work()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:  # a full disk
            code = code or 120
        os._exit(code)


class Row:
    """What a bench starts: a fork of it that has let go of all that the bench holds."""

    def __init__(self, client: int, words: list[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            Path("/proc/self/comm").write_text(f"row {client}")
            os.closerange(3, 1024)  # among them the bench's lock
            _outputs(log, log)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _end_with(lambda: _mona(words))

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        while self.poll() is None:
            time.sleep(0.01)


def _outputs(out: Any, err: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    become(int(sys.argv[1]), serve(int(sys.argv[1])))
