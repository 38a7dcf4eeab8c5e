"""What clients and logs may see: names that the server made, and sentences without paths or patients' names.

A file's name often holds a patient's name, a DICOM zip's members nearly always do.  Unless `--keep-names` is given,
uploaded scans are numbered, and what a message says of a path is replaced by the name that the server gave.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

PLAIN = re.compile(r"[^\w .()+-]+")
LONGEST = 120


def shown_name(name: str | None) -> str:
    """A file name that a client sent, as a text to show: never a path, never long."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    return PLAIN.sub("_", last).strip()[:LONGEST] or "scan"


def fingerprint(name: str) -> str:
    """Finds a name again without keeping it."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def without_paths(sentence: str, called: dict[str, str]) -> str:
    """A sentence for a client: each path of `called` becomes the name that stands for it."""
    for path in sorted(called, key=len, reverse=True):
        if path:
            sentence = sentence.replace(path, called[path])
    return " ".join(sentence.split())


def members(archive: Path) -> dict[str, str]:
    """The names in a zip, which nobody should see, with what stands for them."""
    try:
        with zipfile.ZipFile(archive) as opened:
            named = [info.filename for info in opened.infolist()]
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}
    found = {f"{archive}: {name}": f"file {n} of the zip" for n, name in enumerate(sorted(named), 1)}
    return found | {f"{archive.name}: {name}": f"file {n} of the zip" for n, name in enumerate(sorted(named), 1)}
