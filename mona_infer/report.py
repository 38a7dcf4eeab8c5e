"""An evaluation as a table for people, followed by the rules that produced its numbers."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from mona_infer.metrics import DISTANCES, METRICS

TITLES = {"dsc": "DSC", "jaccard": "Jaccard", "asd": "ASD", "assd": "ASSD", "hd95": "HD95"}


def print_report(report: dict[str, Any], names: dict[int, str]) -> None:
    console = Console(highlight=False)
    unit = report["unit"]
    table = Table("case", "class", *(_title(m, unit) for m in METRICS), title=f"{len(report['cases'])} case(s)")
    for column in table.columns[2:]:
        column.justify = "right"
    for case in report["cases"]:
        for n, (label, score) in enumerate(case["classes"].items()):
            numbers = ["miss" if m in DISTANCES and score.get("miss") else _number(score[m], m) for m in METRICS]
            table.add_row(case["case"] if n == 0 else "", names.get(int(label), label), *numbers)
        table.add_section()
    console.print(table)

    mean = report["mean"]
    title = "mean over cases [95 % bootstrap interval]" if mean["ci95"] else "mean (one case: no interval)"
    table = Table("class", *(_title(m, unit) for m in METRICS), f"scored ASSD ({unit})", "miss rate", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {names.get(int(label), label): entry for label, entry in mean["classes"].items()}
    for name, entry in (*rows.items(), ("mean over classes", mean)):
        if name == "mean over classes":
            table.add_section()
        numbers = [_number(entry[m], m) + _interval((entry["ci95"] or {}).get(m), m) for m in METRICS]
        rate = "-" if entry["miss_rate"] is None else f"{100 * entry['miss_rate']:.0f} %"
        table.add_row(name, *numbers, _number(entry["scored"]["assd"], "assd"), rate)
    console.print(table)
    console.print(f"Definition '{report['definition']}', unit {unit}. " + " ".join(report["rules"]), style="dim")
    console.print("Spacing (i x j x k): " + _spacings(report["cases"]), style="dim")


def _title(metric: str, unit: str) -> str:
    return f"{TITLES[metric]} ({unit})" if metric in DISTANCES else TITLES[metric]


def _number(value: float | None, metric: str) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if metric in DISTANCES else f"{value:.4f}"


def _interval(ends: list[float] | None, metric: str) -> str:
    return "" if ends is None else f"\n[{_number(ends[0], metric)}, {_number(ends[1], metric)}]"


def _spacings(cases: list[dict[str, Any]]) -> str:
    different = sorted({tuple(case["spacing"]) for case in cases})
    words = ["x".join(f"{s:.4g}" for s in spacing) + " mm" for spacing in different]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} others (all in --json)" if len(words) > 3 else "")
