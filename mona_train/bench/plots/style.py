"""One look for all plots: a white card, a colour for each method, colours that the colour-blind tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from mona_infer.io.atomic import atomic_path
from mona_train.bench.comparisons import subject
from mona_train.bench.entries import Entry
from mona_train.bench.published import TITLES

WIDTH = 6.8  # inches: 650 pixels, so that its words can be read at half the size too
# Okabe and Ito's, without yellow, which is pale on white.
VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY = "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
LINE = 24  # letters of a label before it is broken
BLACK, GREY, PALE = "#000000", "#767676", "#C8C8C8"
OTHERS = (BLUE, GREEN, ORANGE, PURPLE, SKY)
MARKERS = "sD^vPX<>p*hd"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "figure.facecolor": "white",
    "svg.fonttype": "path",  # the same on a machine without the font
    "svg.hashsalt": "mona",  # and the same bytes each time
}


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str


FIXED = {"mona": Look(VERMILLION, "o"), "unet-l": Look(GREY, "s"), "unet-f": Look(BLACK, "^")}


def looks(entries: list[Entry]) -> dict[str, Look]:
    """Label -> look.  A method has one everywhere; where one method has several entries, each has its own."""
    rest = [name for name in TITLES if name not in FIXED]
    variants = {e.label for e in entries if sum(o.method == e.method for o in entries) > 1}
    main = subject(entries)
    found = {}
    for n, entry in enumerate(sorted(entries, key=lambda e: e.label)):
        if entry.method in FIXED and (entry.label not in variants or entry is main):
            found[entry.label] = FIXED[entry.method]
        else:
            known = entry.method in rest and entry.label not in variants
            place = rest.index(entry.method) if known else n + len(rest)
            found[entry.label] = Look(OTHERS[place % len(OTHERS)], MARKERS[place % len(MARKERS)])
    return found


def names(entries: list[Entry]) -> dict[str, str]:
    """Label -> what a plot has room for: without the method where all have the same, in short lines."""
    same = len({e.method for e in entries}) == 1 and len(entries) > 1
    cut = {e.label: e.label.partition(", ")[2] or e.label if same else e.label for e in entries}
    return {label: "\n".join(textwrap.wrap(text, LINE)) for label, text in cut.items()}


def titled(axes: Any, text: str) -> None:
    """At the left edge of the picture, wherever its axes begin."""
    axes.figure.suptitle(text, x=0.01, ha="left", fontsize=11)


@contextmanager
def picture(path: Path, height: float, **grid: Any) -> Iterator[Any]:
    """Axes to draw on (or an array of them); saved as SVG when the block ends."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure.subplots(**grid)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": "mona bench report"})


def spread(wanted: list[float], gap: float) -> list[float]:
    """Places for labels at these heights, in their order, at least `gap` apart and as near as that allows."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    groups: list[tuple[list[int], float]] = []  # members, centre
    for n in order:
        members, centre = [n], wanted[n]
        while groups and centre - gap * (len(members) - 1) / 2 - _top(groups[-1], gap) < gap:
            members = groups.pop()[0] + members
            centre = sum(wanted[m] for m in members) / len(members)
        groups.append((members, centre))
    placed = [0.0] * len(wanted)
    for members, centre in groups:
        for k, n in enumerate(members):
            placed[n] = centre + gap * (k - (len(members) - 1) / 2)
    return placed


def _top(group: tuple[list[int], float], gap: float) -> float:
    return group[1] + gap * (len(group[0]) - 1) / 2
