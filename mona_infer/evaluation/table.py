"""An evaluation printed as a table, followed by the definitions behind its numbers."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mona_infer.evaluation.metrics import DISTANCES, METRICS

TITLES = {
    "dsc": "DSC",
    "jaccard": "Jaccard",
    "sensitivity": "Sens",
    "precision": "Prec",
    "nsd": "NSD",
    "asd": "ASD",
    "assd": "ASSD",
    "hd95": "HD95",
    "hd": "HD",
}
DROPPED_FIRST = ("hd", "precision", "sensitivity", "jaccard", "scored ASSD", "assd", "nsd", "asd", "hd95")
NAMES = ("case", "class")
TEXT = 20  # characters that names keep next to the numbers before they are wrapped


def print_report(report: dict[str, Any]) -> None:
    console = Console(highlight=False, markup=False)  # a name may hold brackets
    cases, mean, unit = report["cases"], report["mean"], report["unit"]
    rows: list[dict[str, str]] = []
    for case in cases:
        for n, score in enumerate(case["classes"].values()):
            row = {m: "miss" if m in DISTANCES and score.get("miss") else _number(score[m], m) for m in METRICS}
            rows.append({"case": "" if n else case["case"], "class": score["name"], **row})
        rows[-1]["end"] = "section"

    means: list[dict[str, str]] = []
    for entry in (*mean["classes"].values(), mean | {"name": "mean"}):
        rate = "-" if entry["miss_rate"] is None else f"{100 * entry['miss_rate']:.0f} %"
        scored = _number(entry["scored"]["assd"], "assd")
        row = {m: _number(entry[m], m) for m in METRICS}
        means.append({"class": entry["name"], **row, "scored ASSD": scored, "misses": rate})
        for end, word in enumerate(("  from", "  to") if entry["ci95"] else ()):
            ends = {m: _number((entry["ci95"][m] or [None] * 2)[end], m) for m in METRICS}
            means.append({"class": word, **ends, "style": "dim"})
        means[-1]["end"] = "section"
    title = (
        "mean over cases and its 95 % interval (bootstrap of patients)"
        if mean["ci95"]
        else "mean (one patient: no interval)"
    )
    left_out = {column for table in (rows, means) for column in _without_room(table, console.width)}
    console.print(_table(f"{len(cases)} case{'s' * (len(cases) != 1)}, distances in {unit}", rows, left_out))
    console.print(_table(title, means, left_out))
    titles = ", ".join(TITLES[m] for m in METRICS if m in left_out)
    if titles:
        console.print(f"Left out for lack of space: {titles}. --csv and --json hold all metrics.")
    rules = [f"NSD at a tolerance of {report['tolerance']:g} {unit}.", *report["rules"]]
    console.print(f"Definition '{report['definition']}', unit {unit}. " + " ".join(rules), style="dim")
    console.print("Spacing (i x j x k): " + _spacings(cases), style="dim")


def _without_room(rows: list[dict[str, str]], width: int) -> list[str]:
    """The columns to leave out so that the numbers in the others are not cut off."""
    columns = {c: max(len(TITLES.get(c, c)), *(len(row.get(c, "")) for row in rows)) for c in _columns(rows)}
    columns |= {c: min(columns[c], TEXT) for c in NAMES if c in columns}
    left_out = []
    for least in DROPPED_FIRST:
        if sum(columns.values()) + 2 * len(columns) + 1 > width and least in columns:
            del columns[least]
            left_out.append(least)
    return left_out


def _table(title: str, rows: list[dict[str, str]], left_out: set[str]) -> Table:
    columns = [c for c in _columns(rows) if c not in left_out]
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    for c in columns:
        name = c in NAMES
        table.add_column(TITLES.get(c, c), justify="left" if name else "right", overflow="fold", no_wrap=not name)
    for row in rows:
        table.add_row(*(row.get(c, "") for c in columns), style=row.get("style"), end_section="end" in row)
    return table


def _columns(rows: list[dict[str, str]]) -> list[str]:
    return [name for name in rows[0] if name not in ("end", "style")]


def _number(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if metric in DISTANCES else f"{value:.3f}"


def _spacings(cases: list[dict[str, Any]]) -> str:
    different = sorted({tuple(case["spacing"]) for case in cases})
    shown = ["x".join(f"{s:.4g}" for s in spacing) + " mm" for spacing in different]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more (all in --json)" if len(shown) > 3 else "")
