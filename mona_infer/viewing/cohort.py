"""The page of many cases: a thumbnail and the numbers of each, the doubtful first, leading to the page of each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mona_infer import __version__
from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path
from mona_infer.task import LabelClass
from mona_infer.viewing.document import document

NEAR_THE_START = 1 << 20  # bytes of a case's page in which its entry lies
ENTRY = re.compile(rb'<script type="application/json" id="entry">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True)
class Listed:
    """A case on the page: one that has a page of its own, or one that failed."""

    name: str
    page: Path | None
    error: str | None = None
    entry: Mapping[str, Any] = field(default_factory=dict)


def case_page(index: Path, name: str) -> Path:
    """Where the page of a case lies: in a folder beside that of all cases."""
    return index.parent / f"{index.stem}_cases" / f"{name}.html"


def back_to(index: Path, page: Path) -> str:
    """The address of the page of all cases, from that of one."""
    return _address(index, page.parent)


def listed(name: str, page: Path, error: str | None = None) -> Listed:
    """What a case's page says of itself: it may have been written by an earlier run that was killed."""
    try:
        with page.open("rb") as file:
            match = ENTRY.search(file.read(NEAR_THE_START))
        entry = json.loads(match[1]) if match else None
    except (OSError, ValueError):
        entry = None
    if not isinstance(entry, dict):
        return Listed(name, None, error or "its page is missing or damaged; --overwrite makes it again")
    return Listed(name, page, error, entry)


def write_index(
    path: Path, cases: Iterable[Listed], classes: Sequence[LabelClass], *, title: str, made_by: str = ""
) -> None:
    """Write the page, the doubtful cases first."""
    data = {
        "version": __version__,
        "title": title,
        "made_by": made_by,
        "classes": [{"name": c.name, "colour": list(c.colour)} for c in classes],
        "cases": [
            {
                **case.entry,
                "name": case.name,
                "page": _address(case.page, path.parent) if case.page else None,
                "error": case.error,
            }
            for case in sorted(cases, key=_doubt)
        ],
    }
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(document("index.html", title, ("data.js", "dom.js", "index.js"), {"all": data}))


def check_index(index: Path, names: Sequence[str]) -> None:
    """Refuse a name that would write a case's page over that of all cases."""
    for name in names:
        if case_page(index, name).resolve() == index.resolve():
            raise InputError(f"{index} is also where the page of case {name} would be; choose another --page")


def _doubt(case: Listed) -> tuple[int, float, str]:
    """Failed ones first, then the lowest DSC or, without references, the least sure."""
    if case.page is None:
        return 0, 0.0, case.name
    dsc, sure = case.entry.get("dsc"), case.entry.get("sure")
    value = dsc if dsc is not None else sure
    if value is None:  # nothing was found in it
        return (1 if case.entry.get("warnings") else 3), 0.0, case.name
    return 2, float(value), case.name


def _address(page: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(page, folder)).as_posix())
