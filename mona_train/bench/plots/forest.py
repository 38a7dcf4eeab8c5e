"""Every method's difference from labels alone, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mona_train.bench.comparisons import baseline, compare, signed, subject
from mona_train.bench.entries import Entry
from mona_train.bench.plots import SPAN
from mona_train.bench.sections import Section
from mona_train.bench.statistics import Difference
from mona_train.bench.table import share

MARGIN = 0.004


@dataclass(frozen=True)
class Forest:
    base: Entry
    lines: tuple[tuple[Entry, Difference], ...]  # best first


def forest(section: Section, ratio: float | None) -> Forest | None:
    """None where there is nothing to compare."""
    entries = section.at(ratio)
    base = baseline(section, entries)
    if base is None:
        return None
    found = [(e, compare(e, base)) for e in entries if e is not base]
    lines = tuple((e, d) for e, d in found if d is not None)
    return Forest(base, lines) if lines else None


def draw_forest(data: Forest, section: Section, ratio: float | None, path: Path) -> None:
    from mona_train.bench.plots.style import VERMILLION, looks, names, picture, titled

    colours, main = looks(section.at(ratio)), subject(section.at(ratio))
    called = names(section.at(ratio))
    lines = sum(1 + called[e.label].count("\n") for e, _ in data.lines)
    with picture(path, 1.3 + 0.27 * lines) as axes:
        right = max(0.0, *(d.high for _, d in data.lines)) + MARGIN
        left = max(min(0.0, *(d.low for _, d in data.lines)) - MARGIN, right - SPAN)
        axes.axvline(0, color="#555555", linewidth=1)
        for y, (entry, d) in enumerate(reversed(data.lines)):
            look = colours[entry.label]
            if d.mean < left:  # failed: an arrow that points to where it is
                axes.plot([left + MARGIN], [y], "<", color=look.colour, markersize=9)
            else:
                axes.plot([d.low, d.high], [y, y], color=look.colour, linewidth=2.2, solid_capstyle="butt")
                axes.plot([d.mean], [y], look.marker, color=look.colour, markersize=7)
            words = f"{signed(d.mean)}  ({signed(d.low)} to {signed(d.high)})" if d.patients > 1 else signed(d.mean)
            axes.annotate(words, (1.01, y), xycoords=axes.get_yaxis_transform(), va="center", fontsize=9)
        axes.set_yticks(range(len(data.lines)), [called[e.label] for e, _ in reversed(data.lines)])
        axes.locator_params(axis="x", nbins=5)
        for tick, (entry, _) in zip(axes.get_yticklabels(), reversed(data.lines), strict=True):
            if entry is main:
                tick.set(color=VERMILLION, fontweight="bold")
        axes.set(xlim=(left, right), ylim=(-0.7, len(data.lines) - 0.3))
        axes.grid(axis="y", visible=False)
        patients = data.lines[0][1].patients
        base = called[data.base.label].replace("\n", " ")
        axes.set_xlabel(f"DSC above {base} ({data.base.dsc:.3f}), 95 % interval over {patients} patients")
        titled(axes, f"{section.title}, {share(ratio)}")
