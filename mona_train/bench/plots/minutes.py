"""What accuracy costs: DSC against minutes of training, of processor where every run recorded them."""

from __future__ import annotations

from pathlib import Path

from mona_train.bench.plots import SPAN
from mona_train.bench.sections import Section
from mona_train.bench.table import share

ALIKE = 1.15  # times the shortest
# where a label may stand: to the right, left, above, below, and in the four corners
SIDES = (
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 7, "center", "bottom"),
    (0, -7, "center", "top"),
    (5, 5, "left", "bottom"),
    (-5, 5, "right", "bottom"),
    (5, -5, "left", "top"),
    (-5, -5, "right", "top"),
)
OFFSET = {"left": 0.0, "right": -1.0, "center": -0.5, "bottom": 0.0, "top": -1.0}  # of a label's own size


def draw_minutes(section: Section, ratio: float | None, path: Path) -> bool:
    """False where runs did not record their times, or all took about as long."""
    from mona_train.bench.plots.style import looks, names, picture, titled

    entries = [e for e in section.at(ratio) if e.minutes]
    of_processor = all(e.core_minutes for e in entries)
    spent = {e.label: (e.core_minutes if of_processor else e.minutes) or 0.0 for e in entries}
    times = list(spent.values())
    if len(entries) < 2 or max(times) < ALIKE * min(times):
        return False
    styles, called = looks(section.at(ratio)), names(section.at(ratio))
    top, longest = max(e.dsc for e in entries), max(times)
    bottom = max(min(e.dsc for e in entries) - 0.02, top - SPAN)
    at = {e.label: (spent[e.label], max(e.dsc, bottom + 0.005)) for e in entries}
    failed = {e.label: f"{called[e.label]} {e.dsc:.2f}" for e in entries if e.dsc < bottom}  # at the edge
    with picture(path, 4.4) as axes:
        for label, (x, y) in at.items():
            marker = "v" if label in failed else styles[label].marker
            axes.plot([x], [y], marker, color=styles[label].colour, markersize=8, clip_on=False)
        axes.set(xlim=(0, 1.15 * longest), ylim=(bottom, top + 0.02), ylabel=f"{section.part} DSC")
        axes.set_xlabel(f"{'core-' if of_processor else ''}minutes of training ({_hardware(section)})")
        titled(axes, f"{section.title}, {share(ratio)}")
        axes.figure.draw_without_rendering()  # so that places on the page are known
        points = {
            failed.get(label, called[label]): tuple(axes.transData.transform(point)) for label, point in at.items()
        }
        for (label, point), words, side in zip(at.items(), points, places(points), strict=True):
            x, y, ha, va = SIDES[side]
            where = {"textcoords": "offset points", "ha": ha, "va": va, "annotation_clip": False}
            axes.annotate(words, point, (x, y), color=styles[label].colour, **where)
    return True


def places(points: dict[str, tuple[float, float]], width: float = 9.5, height: float = 15) -> list[int]:
    """For each label the side of its point (of SIDES) where it covers least; sizes are of a letter, in pixels."""
    marks = [(x - 6, y - 6, x + 6, y + 6) for x, y in points.values()]
    options = [[_box(x, y, width * len(label), height, side) for side in SIDES] for label, (x, y) in points.items()]
    chosen = [0] * len(options)
    for _ in range(3):  # the first round does not know the labels that come after
        for n, there in enumerate(options):
            others = [option[c] for m, (option, c) in enumerate(zip(options, chosen, strict=True)) if m != n]
            others += marks[:n] + marks[n + 1 :]
            covered = [sum(_common(box, other) for other in others) for box in there]
            chosen[n] = covered.index(min(covered))
    return chosen


def _box(
    x: float, y: float, width: float, height: float, side: tuple[int, int, str, str]
) -> tuple[float, float, float, float]:
    dx, dy, ha, va = side
    left, low = x + 1.4 * dx + OFFSET[ha] * width, y + 1.4 * dy + OFFSET[va] * height
    return left, low, left + width, low + height


def _common(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes share."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _hardware(section: Section) -> str:
    found = {row.hardware for row in section.rows if row.hardware}
    return found.pop() if len(found) == 1 else "on different machines" if found else "unknown machine"
