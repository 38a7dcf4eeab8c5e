"""The end of a run as a table: DSC and ASD per class, last beside best."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from mona_infer.task import Task


def print_results(results: dict[str, Any], task: Task) -> None:
    """`results` as in results.json."""
    measured = {f"validation, {name}": report for name, report in results.get("validation", {}).items()}
    if "test" in results:
        measured[f"test, {results['chosen']}"] = results["test"]
    if not measured:
        Console(highlight=False).print(
            "there are no cases to measure on, neither validation nor test: the last network is taken", style="dim"
        )
        return
    print_measured(measured, task)
    words = "there are no validation cases to choose by: the last network is taken"
    if results.get("best"):
        words = f"best validation at step {results['best']['step']} of {results['steps']}"
    Console(highlight=False).print(words, style="dim")
    precision = results.get("precision", {})
    if precision.get("trained") != precision.get("measured"):
        Console(highlight=False).print(
            f"trained in {precision['trained']}; measured in full precision, as an exported model computes", style="dim"
        )


def print_measured(measured: dict[str, dict[str, Any]], task: Task) -> None:
    """A row for each class, however many there are, and a column for each summary."""
    console = Console(highlight=False, markup=False)
    padding = (0, 1) if console.width >= 60 else (0, 1, 0, 0)
    table = Table(title="DSC (ASD in mm), mean over volumes", box=box.SIMPLE, title_justify="left", padding=padding)
    table.add_column("", overflow="fold")
    for words in measured:  # no narrower than a distance: a narrow terminal breaks lines and names, never a number
        table.add_column(words, justify="right", overflow="fold", min_width=len("(123.45)"))
    names = [c.name for c in task.classes[1:]] + ["mean"]
    reports = [[*report["classes"].values(), report] for report in measured.values()]
    for name, *entries in zip(names, *reports, strict=True):
        table.add_row(name, *(f"{entry['dsc']:.3f} ({_distance(entry['asd'])})" for entry in entries))
    console.print(table)


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
