"""An evaluation as a table for people, followed by the rules that produced its numbers."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mona_infer.metrics import DISTANCES, METRICS

TITLES = {"dsc": "DSC", "jaccard": "Jaccard", "asd": "ASD", "assd": "ASSD", "hd95": "HD95"}


def print_report(report: dict[str, Any], names: dict[int, str]) -> None:
    console = Console(highlight=False)
    cases, mean, unit = report["cases"], report["mean"], report["unit"]
    table = _table(f"{len(cases)} case{'s' * (len(cases) != 1)}, distances in {unit}", "case", "class", *METRICS)
    for case in cases:
        for n, (label, score) in enumerate(case["classes"].items()):
            numbers = ["miss" if m in DISTANCES and score.get("miss") else _number(score[m], m) for m in METRICS]
            table.add_row(case["case"] if n == 0 else "", names.get(int(label), label), *numbers)
        table.add_section()
    console.print(table)

    title = (
        "mean over cases and its 95 % interval (bootstrap of patients)"
        if mean["ci95"]
        else "mean (one patient: no interval)"
    )
    table = _table(title, "class", *METRICS, "scored ASSD", "misses")
    rows = {names.get(int(label), label): entry for label, entry in mean["classes"].items()}
    for name, entry in (*rows.items(), ("mean", mean)):
        rate = "-" if entry["miss_rate"] is None else f"{100 * entry['miss_rate']:.0f} %"
        scored = _number(entry["scored"]["assd"], "assd")
        table.add_row(name, *(_number(entry[m], m) for m in METRICS), scored, rate)
        for end, word in enumerate(("  from", "  to") if entry["ci95"] else ()):
            ends = [_number((entry["ci95"][m] or [None] * 2)[end], m) for m in METRICS]
            table.add_row(word, *ends, style="dim")
        table.add_section()
    console.print(table)
    console.print(f"Definition '{report['definition']}', unit {unit}. " + " ".join(report["rules"]), style="dim")
    console.print("Spacing (i x j x k): " + _spacings(cases), style="dim")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    for column in columns:
        left = column in ("case", "class")
        table.add_column(
            TITLES.get(column, column), justify="left" if left else "right", overflow="fold", no_wrap=not left
        )
    return table


def _number(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if metric in DISTANCES else f"{value:.3f}"


def _spacings(cases: list[dict[str, Any]]) -> str:
    different = sorted({tuple(case["spacing"]) for case in cases})
    words = ["x".join(f"{s:.4g}" for s in spacing) + " mm" for spacing in different]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more (all in --json)" if len(words) > 3 else "")
