"""The power goes: what no program asked the disk to keep is lost.  The repeated command completes from what is left.

The output lies on ext4 in a file.  Stop everything, copy the file, mount the copy: that is the disk as it would come
up again, its journal replayed, and without what was only in the memory of the machine.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.forked import parent
from helpers.four_commands import (
    NAMES,
    differing,
    leftovers,
    partial,
    run,
    signal_all,
    size_of,
    start,
    wait_until,
    words,
)
from helpers.small_disks import ext4, needs_ext4

SIZE = 64  # MB
MOMENTS = 4  # for each command
SAMPLE = {("prepare", 2), ("segment", 2)}
needs_strace = pytest.mark.skipif(shutil.which("strace") is None or os.geteuid() != 0, reason="needs root and strace")


def written(out: Path) -> int:
    """Bytes below a folder; files may vanish meanwhile."""
    total = 0
    for path in out.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def marks(name: str, moment: int) -> Any:
    return pytest.param(name, moment, marks=[] if (name, moment) in SAMPLE else [pytest.mark.full])


@needs_ext4
@pytest.mark.parametrize(("name", "moment"), [marks(name, n) for name in NAMES for n in range(MOMENTS)])
def test_a_power_cut(
    name: str, moment: int, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    expected = undisturbed(name)
    out, image = tmp_path / "out", tmp_path / "disk"
    share = (moment + random.Random(f"{name} {moment}").random()) / MOMENTS  # of what is written
    with ext4(out, image, megabytes=SIZE):
        process = start(place, *words(name, out))
        wait_until(process, lambda: written(out) >= share * size_of(expected))
        signal_all(process, signal.SIGSTOP)
        shutil.copy(image, tmp_path / "after")
        signal_all(process, signal.SIGKILL)
        process.communicate()
    with ext4(out, tmp_path / "after"):
        assert partial(name, out, expected) == []
        again = run(place, *words(name, out))
        assert again.code == 0, again
        assert differing(name, out, expected) == [] and leftovers(out) == []


@needs_ext4
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "segment" else [pytest.mark.full]) for n in NAMES])
def test_what_a_command_said_it_wrote_survives(
    name: str, place: Path, undisturbed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """The power goes as soon as it has ended."""
    expected = undisturbed(name)
    out, image = tmp_path / "out", tmp_path / "disk"
    with ext4(out, image, megabytes=SIZE):
        done = run(place, *words(name, out))
        assert done.code == 0, done
        shutil.copy(image, tmp_path / "after")
    with ext4(out, tmp_path / "after"):
        assert differing(name, out, expected) == []


# ---- a stricter disk than ext4: it keeps a file's content, and a folder's names, only when each is asked for


CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
BEGUN, ENDED = re.compile(r"(\d+) +(.*) <unfinished \.\.\.>"), re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@needs_strace
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "segment" else [pytest.mark.full]) for n in NAMES])
def test_every_file_is_flushed_before_it_gets_its_name_and_the_folder_after(
    name: str, place: Path, tmp_path: Path
) -> None:
    """strace: a final name is given by a rename alone, to a file that was flushed after its last write."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    watched = "trace=openat,write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2"
    # attached to the process that commands are forked from, and so to the command and its rows
    follow = ["strace", "-f", "-p", str(parent().pid), "-y", "-s", "0", "-e", watched, "-o", str(trace)]
    with subprocess.Popen(follow, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None and "attached" in (attached := tracer.stderr.readline()), attached
        done = run(place, *words(name, out))
        tracer.send_signal(signal.SIGINT)
    assert done.code == 0, done
    faults, renamed = unsafe(trace.read_text(errors="replace").splitlines(), out)
    assert renamed and faults == []


def whole(lines: list[str]) -> Iterator[str]:
    """Calls as lines, where they ended; strace breaks those in two that another thread came between."""
    begun: dict[str, str] = {}
    for line in lines:
        if match := BEGUN.match(line):
            begun[match[1]] = match[2]
        elif match := ENDED.match(line):
            yield f"{match[1]} {begun.pop(match[1], '')}{match[2]}"
        else:
            yield line


def unsafe(lines: list[str], out: Path) -> tuple[list[str], int]:
    """What is not as it should be, and how many files got their names by a rename."""
    dirty: set[str] = set()  # files with writes that no flush has followed
    folders: set[str] = set()  # folders with names that no flush has followed
    faults, renamed = [], 0
    for line in whole(lines):
        match = CALL.match(line)
        if match is None or int(match[4]) < 0:
            continue
        call, given = match[2], match[3]
        opened = re.match(r"\d+<(.*?)>", given)
        path = opened[1] if opened else ""
        if call in ("write", "pwrite64", "writev", "ftruncate") and path.startswith(str(out)):
            dirty.add(path)
        elif call in ("fsync", "fdatasync"):
            dirty.discard(path)
            folders.discard(path)
        elif call.startswith("rename"):
            source, target = QUOTED.findall(given)[:2]
            if not target.startswith(str(out)):
                continue
            renamed += 1
            if lost := [file for file in dirty if file == source or file.startswith(f"{source}/")]:
                faults.append(f"{target} got its name with unflushed {lost}")
            folders.add(str(Path(target).parent))
    return faults + [f"{folder} was not flushed after its last rename" for folder in sorted(folders)], renamed


def test_a_forgotten_flush_is_seen() -> None:
    """The check above can fail."""
    safe = [
        '1 write(3</out/.t>, ""..., 9) = 9',
        "1 fsync(4</out/.t>) = 0",
        '1 rename("/out/.t", "/out/t") = 0',
        "1 fsync(5</out>) = 0",
    ]
    assert unsafe(safe, Path("/out")) == ([], 1)
    begun, ended = '2 write(3</out/.t>, ""..., 9 <unfinished ...>', "2 <... write resumed>) = 9"
    split = [begun, "1 fsync(9</elsewhere>) = 0", ended, *safe[1:]]
    assert unsafe(split, Path("/out")) == ([], 1)
    assert len(unsafe([*split[:3], *safe[2:]], Path("/out"))[0]) == 1  # the file
    assert len(unsafe(safe[:3], Path("/out"))[0]) == 1  # the folder
