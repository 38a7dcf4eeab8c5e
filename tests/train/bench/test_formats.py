"""Tables read back from what they were written as."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from helpers.bench_results import line, write
from rich.console import Console

from mona_train.bench.formats import as_csv, escape, latex, markdown, print_table
from mona_train.bench.reading import read_results
from mona_train.bench.sections import sections
from mona_train.bench.table import Table, table_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    methods = ("unet-f", "unet-l", "mona", "my_method [50 %]")
    rows = [line(m, level, seed=s) for s in (0, 1) for m, level in zip(methods, (0.92, 0.8, 0.9, 0.7), strict=True)]
    [section] = sections(read_results(write(tmp_path / "results.jsonl", rows))[0])
    return table_of(section, 0.05)


def test_csv_has_every_number_and_what_the_table_is_about(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv([table, table]))))
    assert len(rows) == 8
    assert {(r["table"], r["dataset"], r["ratio"], r["preset"], r["part"]) for r in rows} == {
        ("acdc", "acdc", "0.05", "quick", "validation")
    }
    for read, row in zip(rows, table.rows, strict=False):
        for column in table.columns:
            value = row.get(column.key)
            if isinstance(value, float):
                assert float(read[column.key]) == pytest.approx(value, rel=1e-5)
            else:
                assert read[column.key] == ("" if value is None else str(value))
    assert {r["dsc_published"] for r in rows} == {"0.915", "0.517", "0.888", ""}


def test_markdown_is_one_table_with_the_best_in_bold(table: Table) -> None:
    header, rule, *rows = [line.strip("|").split(" | ") for line in markdown(table).splitlines()]
    assert {len(row) for row in (header, rule, *rows)} == {len(table.shown())}
    assert [row[0].strip() for row in rows] == ["UNet-F (all labels)", "MONA", "UNet-L", r"my\_method \[50 %\]"]
    bold = [row[header.index("DSC")].startswith("**") for row in rows]
    assert bold == [False, True, False, False]  # all labels are no rival


def test_latex_is_booktabs_with_nothing_left_to_be_read_as_a_command(table: Table) -> None:
    text = latex(table)
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].splitlines()[1:]
    columns = len(table.shown())
    assert [row.count(" & ") for row in body] == 4 * [columns - 1]
    assert all(row.endswith(r" \\") for row in body)
    assert body[-1].startswith(r"my\_method [50 \%] & 2 & 0.7")
    assert r"\textbf{0." in body[1] and r"\textbf{0." not in body[0]
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1
    assert rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}" in text
    assert r"5 \% of the labels" in text


def test_latex_escapes_read_back() -> None:
    special = r"a\b{c}d$e&f#g%h_i~j^k"
    escaped = escape(special)
    assert escaped == (r"a\textbackslash{}b\{c\}d\$e\&f\#g\%h\_i\textasciitilde{}j\textasciicircum{}k")
    back = escaped.replace(r"\textbackslash{}", "\0").replace(r"\textasciitilde{}", "~")
    back = back.replace(r"\textasciicircum{}", "^").replace("\\", "").replace("\0", "\\")
    assert back == special


@pytest.mark.parametrize("width", [50, 80, 200])
def test_a_terminal_shows_whole_numbers_and_names_what_it_leaves_out(table: Table, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_table(table, console)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out
    for row in table.rows:
        assert str(row["method"]) in out and f"{row['dsc']:.3f}" in out
    assert ("Left out for lack of space" in out) == (width < 200)
