"""What a page may say of where its files came from: their names, which the user chose, but not the folders above.

Folders often are patients' or users' names.  What a DICOM header says of the patient is never read into a page.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def without_folders(sentences: Iterable[str], paths: Sequence[Path]) -> list[str]:
    """Warnings in which files are called by their names alone."""
    folders = {f"{p.parent}{os.sep}" for path in paths for p in (path, path.absolute()) if str(p.parent) != "."}
    longest_first = sorted(folders, key=len, reverse=True)
    found = []
    for sentence in sentences:
        for folder in longest_first:
            sentence = sentence.replace(folder, "")
        found.append(sentence)
    return found
