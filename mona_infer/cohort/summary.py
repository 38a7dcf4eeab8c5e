"""`--summary FILE.csv | FILE.parquet`: a row for each scan (of a cine, for each frame) with volumes and doubts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path, write_text
from mona_infer.segmenting.report import CaseReport

FORMATS = (".csv", ".parquet")


def check_summary(path: Path) -> None:
    """Whether it can be written, before the work."""
    if path.suffix not in FORMATS:
        raise InputError(f"expected --summary FILE.csv or FILE.parquet, found {path}")
    if path.suffix == ".parquet":
        import pyarrow.parquet  # noqa: F401  missing: exit code 3 with the command that installs it


def write_summary(path: Path, reports: Iterable[CaseReport], classes: Sequence[str]) -> None:
    """Sorted by case, so that it does not depend on which worker was first."""
    rows = [row for report in sorted(reports, key=lambda r: r.case) for row in _rows(report, classes)]
    columns = ["case", "scan", "mask", "frame", *(_column(name) for name in classes), "doubts", "warnings", "error"]
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        kinds = {"frame": pyarrow.int32(), "doubts": pyarrow.int32()} | {_column(n): pyarrow.float64() for n in classes}
        schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in columns])
        with atomic_path(path) as temporary:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), temporary)
        return
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(path, text.getvalue())


def _column(name: str) -> str:
    return f"{name} ml"


def _rows(report: CaseReport, classes: Sequence[str]) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"case": report.case, "scan": report.scan, "mask": report.mask}
    if report.error is not None:
        return [row | {"error": report.error}]
    row |= {"doubts": len(report.warnings), "warnings": "; ".join(report.warnings) or None}
    return [
        row
        | {"frame": n if len(report.frames) > 1 else None}
        | {_column(name): frame.classes[name].ml for name in classes if name in frame.classes}
        for n, frame in enumerate(report.frames)
    ]
