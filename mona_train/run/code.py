"""Which code trained a run: a hash of every source that its numbers depend on, and the commit if git knows it."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (".py", ".cpp", ".hpp", ".txt")
PARTS = ("mona_kernels", "mona_train", "mona_infer")
# Commands, displays, exports and readers of other formats can change without changing what is learned or measured.
# What prepares data is left out because the content of the prepared data is part of a row's key.
IGNORED = (
    *("mona_train/bench", "mona_train/cli", "mona_train/export", "mona_train/run", "mona_train/labelling"),
    *("mona_train/data/adapters", "mona_train/data/check.py", "mona_train/data/prepare.py"),
    *(f"mona_infer/segmenting/{name}.py" for name in ("cine", "jobs", "outputs", "report")),
)
# What training takes from mona_infer: preprocessing, the path of a scan to its mask, and metrics.
INFER = ("geometry", "evaluation", "segmenting", "segmenter.py", "task.py", "volume.py")


@cache
def code_hash(root: Path = ROOT) -> str:
    """Changes when a file that numbers depend on does; comments count too, because nothing here can tell."""
    digest = hashlib.sha256()
    for path in _files(root):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(root: Path) -> list[Path]:
    ignored = [root / part for part in IGNORED]
    infer = [root / "mona_infer" / part for part in INFER]
    found = []
    for part in PARTS:
        for path in (root / part).rglob("*"):
            if path.suffix not in SOURCES or "__pycache__" in path.parts:
                continue
            if any(path.is_relative_to(folder) for folder in ignored):
                continue
            if part == "mona_infer" and not any(path.is_relative_to(folder) for folder in infer):
                continue
            found.append(path)
    return sorted(found)


@cache
def commit(root: Path = ROOT) -> str | None:
    """The short hash of the commit, with -dirty if sources differ from it; None outside a clone."""
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "--short=7", "HEAD")
    if head is None:
        return None
    return head + ("-dirty" if _git(root, "diff", "--name-only", "HEAD", "--", *PARTS) else "")


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
