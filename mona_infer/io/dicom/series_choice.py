"""Which of the series in a folder is read, and how series are listed in messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.io.dicom.header import Damaged, Header
from mona_infer.io.dicom.slice import printable

HOW = "choose one with --series and its number, description or SeriesInstanceUID"
LISTED = 8


def by_series(headers: Sequence[Header]) -> dict[str, list[Header]]:
    groups: dict[str, list[Header]] = defaultdict(list)
    for header in headers:
        groups[header.labels[0]].append(header)
    return groups


def choose(
    headers: Sequence[Header], damaged: Sequence[Damaged], wanted: str | None, path: Path
) -> tuple[list[Header], list[str]]:
    """The headers of the chosen series, and notes on the choice."""
    groups = by_series(headers)
    # Damaged files count too, or another series could become the largest.
    counts = {
        uid: sum(header.frames for header in group) + sum(file.series == uid for file in damaged)
        for uid, group in groups.items()
    }
    ranked = sorted(groups, key=lambda uid: -counts[uid])
    if wanted is not None:
        matching = [uid for uid in ranked if any(wanted in header.labels for header in groups[uid])]
        lost = next((file for file in damaged if file.series == wanted), None)
        if lost is not None and not matching:
            raise lost.error
        if len(matching) != 1:
            found = f"{len(matching)} series match" if matching else "no series matches"
            listing = _listed(matching or ranked, groups, counts)
            raise InputError(f"{printable(path)}: {found} {wanted!r}; {HOW} ({listing})")
        return groups[matching[0]], _others_damage(damaged, matching[0], groups)
    first, *others = ranked
    if others and counts[first] == counts[others[0]]:
        listing = _listed(ranked, groups, counts)
        raise InputError(f"{printable(path)} has several series with the same number of slices ({listing}); {HOW}")
    notes = _others_damage(damaged, first, groups)
    if others:
        read, also = _listed(ranked, groups, counts, 0, 1), _listed(ranked, groups, counts, 1)
        notes.append(f"read series {read}, the largest in {printable(path.name)}; others: {also}; {HOW}")
    return groups[first], notes


def _listed(
    uids: Sequence[str], groups: dict[str, list[Header]], counts: dict[str, int], start: int = 0, count: int = LISTED
) -> str:
    """Number, description, slices and size; the UID only if nothing else distinguishes two series."""
    names = [groups[uid][0].labels[1:] for uid in uids]
    parts = []
    for uid, name in list(zip(uids, names, strict=True))[start : start + count]:
        rows, columns = (groups[uid][0].tags.get(keyword) for keyword in ("Rows", "Columns"))
        unique = names.count(name) == 1
        parts.append(
            f"{name[0] or '(no number)'} {name[1]!r} with {counts[uid]} slice(s) of {columns}x{rows} pixels"
            + ("" if unique else f" (UID {uid or 'missing'})")
        )
    more = len(uids) - start - count
    return ", ".join(parts) + (f" and {more} more" if more > 0 and count > 1 else "")


def _others_damage(damaged: Sequence[Damaged], chosen: str, groups: dict[str, list[Header]]) -> list[str]:
    """A note on damaged files of other series; a damaged file that may belong to the chosen series is an error.

    A file too damaged to name its series is assumed to belong to the series in its folder.
    """
    own = {header.file.folder for header in groups[chosen]}
    others = {header.file.folder for uid, group in groups.items() if uid != chosen for header in group}
    for file in damaged:
        if file.series == chosen or (file.series is None and file.file.folder not in others - own):
            raise file.error
    if not damaged:
        return []
    return [f"skipped {len(damaged)} damaged file(s) of other series, such as {damaged[0].file.name}"]
