"""Validation DSC while training, and against the share of labels: lines with their names at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mona_train.bench.comparisons import LABELS_ALONE, subject
from mona_train.bench.entries import Entry
from mona_train.bench.plots import SPAN
from mona_train.bench.published import ALL_LABELS
from mona_train.bench.sections import Section
from mona_train.bench.table import share

Points = list[tuple[float, float]]
NAMED = 7  # lines in colour; the others are grey, or none could be followed


def named(entries: list[Entry]) -> list[Entry]:
    """MONA, labels alone, all labels and the best others (`entries` are best first)."""
    main = subject(entries)
    first = [e for e in entries if e is main or e.method in (LABELS_ALONE, ALL_LABELS)]
    return [*first, *(e for e in entries if e not in first)][: max(NAMED, len(first))]


def draw_curves(section: Section, ratio: float | None, path: Path) -> bool:
    """False where no row has a curve of at least two points."""
    from mona_train.bench.plots.style import picture, titled

    entries = [e for e in section.at(ratio) if len(e.curve) > 1]
    if not entries:
        return False
    coloured = named(entries)
    ends = [e.curve[-1][1] for e in entries]
    early = sorted(dsc for e in coloured for _, dsc in e.curve)
    bottom = max(early[len(early) // 20], max(ends) - SPAN)  # what the first validations say is of no interest
    with picture(path, 4.2) as axes:
        axes.set_ylim(bottom, max(max(dsc for _, dsc in e.curve) for e in entries) + 0.02)
        _lines(axes, {e.label: e.curve for e in entries}, section.at(ratio), [e.label for e in coloured])
        axes.set(xlabel="step", ylabel=f"{section.part} DSC")
        axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
        grey = len(entries) - len(coloured)
        titled(axes, f"{section.title}, {share(ratio)}" + (f"; grey: {grey} more" if grey else ""))
    return True


def by_ratio(section: Section) -> dict[str, Points]:
    """Label -> (share of labels in %, DSC), of methods that were measured at two or more."""
    found: dict[str, Points] = {}
    for entry in section.entries:
        if entry.first.ratio is not None and entry.method != ALL_LABELS:
            found.setdefault(entry.label, []).append((100 * entry.first.ratio, entry.dsc))
    return {label: sorted(points) for label, points in found.items() if len(points) > 1}


def draw_by_ratio(section: Section, path: Path) -> bool:
    from mona_train.bench.plots.style import BLACK, picture, titled

    lines = by_ratio(section)
    if not lines:
        return False
    at = section.ratios()[len(section.ratios()) // 2]
    entries = [e for e in section.at(at) if e.label in lines]
    full = [e for e in section.entries if e.method == ALL_LABELS][:1]
    shown = [dsc for points in lines.values() for _, dsc in points] + [e.dsc for e in full]
    with picture(path, 4.0) as axes:
        axes.set_ylim(max(min(shown) - 0.02, max(shown) - SPAN), max(shown) + 0.02)
        for entry in full:
            axes.axhline(entry.dsc, color=BLACK, linewidth=1.2, linestyle="--")
            at_left = {"xycoords": axes.get_yaxis_transform(), "va": "bottom"}
            axes.annotate(f"{entry.label}, all labels", (0.01, entry.dsc), **at_left)
        axes.set_xscale("log")
        _lines(axes, lines, section.at(at), [e.label for e in named(entries)], markers=True)
        ticks = sorted({x for points in lines.values() for x, _ in points})
        axes.set_xticks(ticks, [f"{x:g} %" for x in ticks])
        axes.minorticks_off()
        axes.set(xlabel="training patients whose labels are used", ylabel=f"{section.part} DSC")
        titled(axes, section.title)
    return True


def _lines(
    axes: Any,
    lines: dict[str, Points],
    entries: list[Entry],
    coloured: list[str],
    *,
    markers: bool = False,
) -> None:
    """Lines with their names at the right end, moved apart where they would overlap; the limits of y are set."""
    from mona_train.bench.plots.style import PALE, looks, names, spread

    styles, called = looks(entries), names(entries)
    for label, points in lines.items():
        look, kept = styles[label], label in coloured
        axes.plot(
            *zip(*points, strict=True),
            color=look.colour if kept else PALE,
            linewidth=2.4 if look.marker == "o" else 1.6 if kept else 0.9,
            marker=look.marker if markers and kept else None,
            zorder=3 if kept else 1,
        )
    low, high = axes.get_ylim()
    ends = [(lines[label][-1][0], max(lines[label][-1][1], low)) for label in coloured]
    lines_of_text = 1 + max((called[label].count("\n") for label in coloured), default=0)
    heights = spread([y for _, y in ends], 0.055 * lines_of_text * (high - low))
    for label, end, height in zip(coloured, ends, heights, strict=True):
        colour = styles[label].colour
        where = {"textcoords": axes.get_yaxis_transform(), "va": "center", "annotation_clip": False}
        axes.annotate(
            called[label],
            end,
            (1.02, height),
            color=colour,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "relpos": (0, 0.5), "shrinkA": 1},
            **where,
        )
