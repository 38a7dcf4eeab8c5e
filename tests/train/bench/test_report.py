"""`mona bench report`: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
import typer
from helpers.bench_results import LEVELS, line, write
from typer.testing import CliRunner

from mona_infer.errors import InputError, MissingPart
from mona_train.bench.page import index
from mona_train.cli.bench_report import report

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)\)")
app = typer.Typer()
app.command()(report)


def run(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rows = [line(m, seed=s) for m in LEVELS for s in (0, 1)]
    rows += [line("mona", table="components", principles=p) for p in ([], ["tailness"])]
    rows = [line("mona", code="01dc0de"), *rows]
    return write(tmp_path / "results.jsonl", rows)


def test_the_terminal_shows_tables_and_what_they_say(results: Path) -> None:
    out = run(results)
    assert "ACDC, preset quick, 5 % of the labels" in out
    assert "Components (ACDC), preset quick" in out
    assert "MONA is better than labels alone (UNet-L)" in out
    assert not list(results.parent.glob("*.svg"))


def test_formats_go_to_standard_output(results: Path) -> None:
    rows = list(csv.DictReader(run(results, "--format", "csv").splitlines()))
    assert len(rows) == len(LEVELS) + 1 + 2
    assert run(results, "--format", "latex").count(r"\toprule") == 3
    assert run(results, "--format", "md").count("| --- |") == 3
    assert run(results, "--format", "csv", "--any-code").splitlines()[0] == ",".join(rows[0])


def test_every_format_has_the_comparisons(results: Path) -> None:
    """The same numbers: in the terminal and Markdown as sentences, in LaTeX too, in CSV as columns of each row."""
    row = next(r for r in csv.DictReader(run(results, "--format", "csv").splitlines()) if r["method"] == "UNet-L")
    mean, low, high = (float(row[f"mona_minus_this{end}"]) for end in ("", "_low", "_high"))
    assert low < mean < high and row["mona_is"] == "better"
    said = f"MONA is better than labels alone (UNet-L): +{mean:.3f} DSC, 95 % interval +{low:.3f} to +{high:.3f}"
    for form in ("console", "md"):
        assert said in " ".join(run(results, "--format", form).split())
    assert said.replace("%", r"\%") in run(results, "--format", "latex")
    own = next(r for r in csv.DictReader(run(results, "--format", "csv").splitlines()) if r["method"] == "MONA")
    assert own["mona_minus_this"] == own["mona_is"] == ""


def test_the_pages_are_whole(results: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra `bench`)")
    out = tmp_path / "pages"
    said = run(results, "--out", out)
    written = {path.name for path in out.iterdir()}
    assert said.splitlines()[-1] == f"wrote {out / 'index.md'} and {len(written) - 1} files beside it"
    for page in out.glob("*.md"):
        for target in LINK.findall(page.read_text()):
            assert target in written, f"{page.name} links {target}"
    front = (out / "index.md").read_text()
    assert front.index("![") < front.index("MONA is better") < front.index("What was not run")
    assert "`mona bench lits`" in front
    linked = {name for page in out.glob("*.md") for name in LINK.findall(page.read_text())}
    toctree = {f"{name}.md" for name in front.partition(":hidden:\n")[2].split() if name != "```"}
    assert written == linked | toctree | {"index.md"}
    older = (out / "acdc-quick-01dc0de.md").read_text()
    assert "should not be compared" in older and "code 01dc0de" in older
    assert "01dc0de" not in front.partition("## Measured with other code")[0]


def test_a_page_without_rows_says_so() -> None:
    assert "Nothing has been measured yet." in index([], [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--format", "pdf"), "unknown --format 'pdf'; choose one of console, md, csv, latex"),
        (("--runs", "."), "add --out FOLDER"),
    ],
)
def test_options_that_cannot_be_used(results: Path, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(results, *words)


def test_an_empty_file_has_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no finished row yet"):
        run(write(tmp_path / "results.jsonl", []))
    with pytest.raises(InputError, match="`mona bench` writes it"):
        run(tmp_path / "nowhere")


def test_without_matplotlib_the_tables_are_there_and_pages_name_the_command(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "MONA" in run(results)
    with pytest.raises(MissingPart, match=r'needs matplotlib, which is not installed; run: .*pip install "matplotlib'):
        run(results, "--out", tmp_path / "pages")
    assert not (tmp_path / "pages").exists()
