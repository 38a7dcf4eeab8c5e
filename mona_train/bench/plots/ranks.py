"""Is the order of the methods the paper's?  The paper's ranks on the left, ours on the right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mona_train.bench.sections import Section
from mona_train.bench.statistics import rank_correlation, ranks
from mona_train.bench.table import share


@dataclass(frozen=True)
class Ranks:
    labels: tuple[str, ...]
    paper: tuple[float, ...]
    ours: tuple[float, ...]
    correlation: float | None


def rank_pairs(section: Section, ratio: float | None) -> Ranks | None:
    """Of the methods that have a published number; None for fewer than three."""
    entries = [(e, e.published.dsc) for e in section.at(ratio) if e.published]
    if len(entries) < 3:
        return None
    paper, ours = [dsc for _, dsc in entries], [e.dsc for e, _ in entries]
    labels = tuple(e.label for e, _ in entries)
    return Ranks(labels, tuple(ranks(paper)), tuple(ranks(ours)), rank_correlation(paper, ours))


def draw_ranks(data: Ranks, section: Section, ratio: float | None, path: Path) -> None:
    from mona_train.bench.plots.style import looks, names, picture, spread, titled

    entries = section.at(ratio)
    styles, called, dsc = looks(entries), names(entries), {e.label: e for e in entries}
    left, right = spread(list(data.paper), 1), spread(list(data.ours), 1)  # equal scores share a rank, not a place
    with picture(path, 1.1 + 0.26 * len(data.labels)) as axes:
        for label, *ends, at, to in zip(data.labels, data.paper, data.ours, left, right, strict=True):
            look, entry = styles[label], dsc[label]
            assert entry.published is not None
            width = 2.4 if look.marker == "o" else 1.3
            axes.plot([0, 1], ends, color=look.colour, marker=look.marker, linewidth=width)
            axes.text(
                -0.04, at, f"{called[label]}  {entry.published.dsc:.3f}", ha="right", va="center", color=look.colour
            )
            axes.text(1.04, to, f"{entry.dsc:.3f}  {called[label]}", va="center", color=look.colour)
        axes.set(xlim=(-0.75, 1.75), ylim=(len(data.labels) + 0.6, 0.4))
        axes.set_xticks([0, 1], ["the paper", "here"])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_yticks([])
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set_visible(False)
        rho = (
            ""
            if data.correlation is None
            else f": rank correlation {data.correlation:.2f}".replace("-", "\N{MINUS SIGN}")
        )
        titled(axes, f"Order of the methods{rho}\n{section.title}, {share(ratio)}")
