"""How fast `mona serve` is when several people send scans at once, beside `mona segment FOLDER` of the same scans.

    python tools/load_serve.py --model runs/mine/model.onnx --scans path/to/scans --users 4 --count 50

Each user sends a scan, waits for its mask and fetches it, until all are done.  Both are timed from start to end of the
work, without the start of the process; the masks are compared byte for byte.  Prints one JSON object, with seconds of
the clock and of the processor: the latter say something even on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

MONA = Path(sys.executable).with_name("mona")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--scans", type=Path, required=True, help="a folder of .nii.gz files, at any depth")
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=1, help="one after the other, in turns; medians are printed")
    asked = parser.parse_args()
    scans = [p for p in sorted(asked.scans.rglob("*.nii.gz")) if not p.name.endswith(("_gt.nii.gz", "_4d.nii.gz"))]
    scans = scans[: asked.count]
    found = [once(scans, asked.model.resolve(), asked.users, asked.threads) for _ in range(asked.repeats)]
    alone, served = ({what: median(f[n][what] for f in found) for what in found[0][n]} for n in (0, 1))
    ratios = {what: round(median(s[what] / a[what] for a, s, _ in found), 3) for what in alone}
    print(json.dumps({"scans": len(scans), "users": asked.users, "folder": alone, "serve": served,
                      "ratios": ratios, "different masks": sum(f[2] for f in found)}, indent=1))  # fmt: skip


def once(scans: list[Path], model: Path, users: int, threads: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What `mona segment FOLDER` took, what the server took, and how many of their masks differ."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "scans").mkdir()
        for n, scan in enumerate(scans):
            (place / "scans" / f"{n:03d}.nii.gz").symlink_to(scan.resolve())
        alone = time_folder(place, model, threads)
        served = time_server(place, model, users, threads)
        files = [(place / "masks" / f"{n:03d}.nii.gz", place / "served" / f"{n:03d}.nii.gz") for n in range(len(scans))]
        return alone, served, sum(a.read_bytes() != b.read_bytes() for a, b in files)


def time_folder(place: Path, model: Path, threads: int) -> dict[str, Any]:
    """`mona segment FOLDER`, less what it takes to start and to segment the first scan."""
    command = [str(MONA), "segment", "--model", str(model), "--threads", str(threads), "--json", str(place / "r.json")]
    (place / "one").mkdir()
    (place / "one" / "000.nii.gz").symlink_to((place / "scans" / "000.nii.gz").resolve())
    taken = []
    for scans, masks in (("one", "one-mask"), ("scans", "masks")):
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, scans, "--out", masks], cwd=place, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        taken.append((time.monotonic() - began, used))
    (start, started), (whole, used) = taken
    return {"seconds": round(whole - start, 2), "processor seconds": round(used - started, 2)}


def time_server(place: Path, model: Path, users: int, threads: int) -> dict[str, Any]:
    command = [str(MONA), "serve", "--port", "0", "--model", str(model), "--threads", str(threads)]
    process = subprocess.Popen(
        [*command, "--state", str(place / "state")], cwd=place, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = next(line.split()[1].rstrip("/") for line in process.stdout if line.startswith("open "))
    (place / "served").mkdir()
    todo: queue.Queue[Path] = queue.Queue()
    for path in sorted((place / "scans").iterdir()):
        todo.put(path)
    segment(address, place / "scans" / "000.nii.gz", place / "served" / "000.nii.gz")  # loads the engine
    todo.get()
    idle, before = resident(process.pid), processor(process.pid)
    began = time.monotonic()

    def user() -> None:
        while True:
            try:
                path = todo.get_nowait()
            except queue.Empty:
                return
            segment(address, path, place / "served" / path.name)

    people = [threading.Thread(target=user) for _ in range(users)]
    for person in people:
        person.start()
    peak = idle
    while any(person.is_alive() for person in people):
        peak = max(peak, resident(process.pid))
        time.sleep(0.2)
    seconds, used = time.monotonic() - began, processor(process.pid) - before
    process.terminate()
    process.wait()
    taken = {"seconds": round(seconds, 2), "processor seconds": round(used, 2)}
    return {**taken, "memory after one scan, MB": idle, "most memory, MB": peak}


def segment(address: str, scan: Path, mask: Path) -> None:
    """What a user does, by the API alone: the events tell when the mask is there."""
    edge = "load"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="scan"\r\n\r\n'.encode()
    body = head + scan.read_bytes() + f"\r\n--{edge}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    id = json.loads(ask(urllib.request.Request(f"{address}/api/scans", body, kind)))["id"]
    job = json.dumps({"kind": "segment", "scan": id}).encode()
    started = json.loads(ask(urllib.request.Request(f"{address}/api/jobs", job, {"Content-Type": "application/json"})))
    said = ask(urllib.request.Request(f"{address}/api/jobs/{started['id']}/events")).decode()
    assert '"state": "done"' in said, said[-500:]
    mask.write_bytes(ask(urllib.request.Request(f"{address}/api/scans/{id}/mask")))


def ask(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=600) as answer:
        return bytes(answer.read())


def processor(pid: int) -> float:
    """Seconds of all its threads, in the program and in the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000


if __name__ == "__main__":
    main()
