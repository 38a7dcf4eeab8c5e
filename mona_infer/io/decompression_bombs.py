"""Files that would unpack to far more than any real scan does are refused before they are unpacked."""

from __future__ import annotations

from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.system.memory_budget import size_in_words

BYTES = 512 << 20  # anything up to this size is unpacked
RATIO = 200  # real scans shrink 2- to 10-fold, even sparse masks rarely 200-fold


def refuse_bomb(path: Path | str, packed: int, unpacked: int, remedy: str) -> None:
    if unpacked > BYTES and unpacked > packed * RATIO:
        raise InputError(
            f"{path} would expand from {size_in_words(packed)} to {size_in_words(unpacked)}, like a decompression "
            f"bomb; if it is genuine, {remedy}"
        )
