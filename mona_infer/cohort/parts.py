"""`--num-parts N --part K`: for schedulers that know nothing but arrays of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mona_infer.errors import InputError

T = TypeVar("T")


def check_parts(num_parts: int | None, part: int | None) -> None:
    if (num_parts is None) != (part is None):
        raise InputError("--num-parts and --part belong together, e.g. --num-parts 10 --part 0")
    if num_parts is not None and part is not None and not 0 <= part < num_parts:
        raise InputError(f"--part must be 0 to {num_parts - 1} with --num-parts {num_parts}, found {part}")


def part_of(items: Sequence[T], num_parts: int | None, part: int | None) -> list[T]:
    """Every Nth of a sorted list, from the Kth: large scans that lie together are shared out, and a scan has the same
    part in every command over the same list."""
    return list(items) if num_parts is None else list(items[part::num_parts])
