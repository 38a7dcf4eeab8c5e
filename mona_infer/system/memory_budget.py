"""How much memory is used and may be used, and sizes as text."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mona_infer.errors import InputError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def size_in_words(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"


def sizes_in_words(needed: int, limit: int) -> tuple[str, str]:
    """Two sizes with enough digits to see that they differ."""
    unit, name = (1e9, "GB") if min(needed, limit) >= 1e8 else (1e6, "MB")
    for digits in range(2, 10):
        both = f"{needed / unit:.{digits}f} {name}", f"{limit / unit:.{digits}f} {name}"
        if both[0] != both[1]:
            break
    return both


def parse_size(text: str) -> int:
    """The bytes in "2GB", "800MB", "1.5 GiB" or "2G"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    if match is None or (count := int(float(match[1]) * UNITS[match[2]])) < 1:
        raise InputError(f"expected a size like 2GB or 800MB, found {text!r}")
    return count


def memory_budget() -> int:
    """Bytes that one volume may use: three quarters of the machine's memory, which leaves room for the mask."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    except (AttributeError, ValueError, OSError):
        return 8 << 30


def resident() -> int:
    """Bytes of memory that this process uses now (its peak, on systems that only report that)."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class TooLarge(InputError):
    """Something needs more memory than is available.  The numbers are kept for callers who can say more."""

    def __init__(self, what: str, needed: int, budget: int, remedy: str) -> None:
        wanted, there = sizes_in_words(needed, max(0, budget))
        super().__init__(f"{what} needs {wanted} of memory, but only {there} can be used; {remedy}")
        self.what, self.needed, self.budget, self.remedy = what, needed, budget, remedy
