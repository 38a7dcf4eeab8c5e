"""A table as Markdown, CSV, LaTeX (booktabs), or printed in the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from mona_train.bench.table import Column, Table, Value

DROPPED_FIRST: tuple[str, ...] = (
    "asd_published",
    "dsc_paper_rules",
    "minutes",
    "dsc_last",
    "asd_paper_rules",
    "dsc_spread",
)
DROPPED_FIRST += ("core_minutes", "asd_mm")
LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
}
MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|"})


def markdown(table: Table) -> str:
    """The table alone; its title and notes are headings and paragraphs of whatever it stands in."""
    columns = table.shown()
    lines = [[c.title for c in columns], ["---" if _left(c) else "---:" for c in columns]]
    for row in table.rows:
        texts = [(c.text(row.get(c.key)).translate(MARKDOWN), table.bold(row, c)) for c in columns]
        lines.append([f"**{text}**" if bold else text for text, bold in texts])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_csv(tables: Sequence[Table]) -> str:
    """All tables below each other, every number in full; what is the same for a table's rows is in columns too."""
    columns = list(dict.fromkeys(c.key for table in tables for c in table.columns))
    facts = list(dict.fromkeys(name for table in tables for name in table.facts))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*facts, *columns])
    for table in tables:
        for row in table.rows:
            writer.writerow([_raw(table.facts.get(n)) for n in facts] + [_raw(row.get(key)) for key in columns])
    return text.getvalue()


def latex(table: Table, said: Sequence[str] = ()) -> str:
    """One `table` environment, with what is `said` of it and its notes below; needs \\usepackage{booktabs}."""
    columns = table.shown()
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.title)}.}}",
        rf"\begin{{tabular}}{{{''.join('l' if _left(c) else 'r' for c in columns)}}}",
        r"\toprule",
        " & ".join(escape(c.title) for c in columns) + r" \\",
        r"\midrule",
    ]
    for row in table.rows:
        texts = [(escape(c.text(row.get(c.key))), table.bold(row, c)) for c in columns]
        lines.append(" & ".join(rf"\textbf{{{text}}}" if bold else text for text, bold in texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {escape(' '.join(part))}" for part in (said, table.notes) if part]
    return "\n".join([*lines, r"\end{table}", ""])


def print_table(table: Table, console: Console) -> None:
    """Columns that a narrow terminal has no room for are left out, and named; a number is never broken."""
    columns, left_out = list(table.shown()), []
    for key in DROPPED_FIRST:
        if sum(_width(table, c) + 2 for c in columns) + 1 > console.width:
            left_out += [c.title for c in columns if c.key == key]
            columns = [c for c in columns if c.key != key]
    shown = RichTable(title=table.title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    for column in columns:
        shown.add_column(column.title, justify="left" if _left(column) else "right", min_width=_width(table, column))
    for row in table.rows:
        texts = [(c.text(row.get(c.key)), table.bold(row, c)) for c in columns]
        shown.add_row(*(f"[bold]{_plain(text)}[/bold]" if bold else _plain(text) for text, bold in texts))
    console.print(shown, markup=True)
    if left_out:
        console.print(f"Left out for lack of space: {'; '.join(left_out)}. --format csv has every column.", style="dim")
    for note in table.notes:
        console.print(note, style="dim", markup=False)


def _width(table: Table, column: Column) -> int:
    """Of its numbers, and of the longest word of its title, which may break over lines."""
    return max(len(text) for text in [*column.title.split(), *(column.text(r.get(column.key)) for r in table.rows)])


def escape(text: str) -> str:
    """For LaTeX."""
    return "".join(LATEX.get(c, c) for c in text)


def _left(column: Column) -> bool:
    return column.key in ("method", "code")


def _raw(value: Value) -> Value:
    return float(f"{value:.6g}") if isinstance(value, float) else "" if value is None else value


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
