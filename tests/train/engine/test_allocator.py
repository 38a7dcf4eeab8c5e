"""`keep_freed_memory`, in a process of its own: what it sets stays set."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

TOUCH = """
import resource, sys, torch
from mona_train.engine.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for _ in range(20):  # the first ones leave gaps that are too small for the next
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(1 << 26, dtype=torch.uint8).fill_(1)  # freed at once
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_large_block_is_used_again_without_being_cleared() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", TOUCH, how], capture_output=True, check=True).stdout)
        for how in ("kept", "default")
    }
    assert faults["kept"] < 100 < faults["default"]
