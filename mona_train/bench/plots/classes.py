"""DSC of each class: which organ a method gains on, and which it leaves alone."""

from __future__ import annotations

from pathlib import Path

from mona_train.bench.plots.curves import named
from mona_train.bench.sections import Section
from mona_train.bench.table import share

ACROSS = 4  # panels side by side


def draw_classes(section: Section, ratio: float | None, path: Path) -> None:
    """A panel for each class.  Dots, because bars from 0 would all look alike, and from elsewhere would exaggerate."""
    from mona_train.bench.plots.style import looks, names, picture, titled

    entries = sorted(named(section.at(ratio)), key=lambda e: e.dsc)
    styles, classes = looks(section.at(ratio)), entries[0].first.classes
    called = names(section.at(ratio))
    values = {name: [e.of_class(name) for e in entries] for name in classes}
    columns = min(ACROSS, len(classes))
    rows = -(-len(classes) // columns)
    grid = {"nrows": rows, "ncols": columns, "sharey": True, "squeeze": False}
    with picture(path, 0.9 + rows * (0.5 + 0.27 * len(entries)), **grid) as axes:
        lowest = max(min(min(found) for found in values.values()), 0.4)
        left = lowest - 0.3 * (1 - lowest)
        for name, panel in zip(classes, axes.flat, strict=False):
            for y, (entry, dsc) in enumerate(zip(entries, values[name], strict=True)):
                look, x = styles[entry.label], max(dsc, left)
                panel.plot([left, x], [y, y], color=look.colour, linewidth=0.8)
                panel.plot([x], [y], look.marker, color=look.colour, markersize=7)
                panel.text(x + 0.05 * (1 - left), y, f"{dsc:.3f}", va="center", fontsize=9)
            panel.set(title=name, xlim=(left, 1 + 0.35 * (1 - left)))
            panel.set_xticks([t for t in (0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1) if t >= left][-3:])
            panel.set_yticks(range(len(entries)), [called[e.label] for e in entries])
            panel.grid(axis="y", visible=False)
        for panel in list(axes.flat)[len(classes) :]:
            panel.set_visible(False)
        titled(axes[0, 0], f"{section.title}, {share(ratio)}: DSC per class")
