"""The benchmark's pages in docs/results say what its results.jsonl says."""

from __future__ import annotations

import pytest
from helpers.doc_pages import ROOT

from mona_train.bench.comparisons import comparisons
from mona_train.bench.formats import markdown
from mona_train.bench.page import slug
from mona_train.bench.report import as_text, load
from mona_train.bench.table import table_of

RESULTS = ROOT / "docs/results"
AGAIN = "run `mona bench report docs/results --out docs/results`"


def test_every_row_is_whole() -> None:
    made, notes = load(RESULTS)
    assert made and not notes
    codes = {row.code for section in made for row in section.rows}
    assert len(codes) == 1, f"rows of different code are not compared: {codes}"


@pytest.mark.parametrize(("name", "kind"), [("results.csv", "csv"), ("tables.tex", "latex")])
def test_files_have_the_numbers_of_the_rows(name: str, kind: str) -> None:
    assert (RESULTS / name).read_text(encoding="utf-8") == as_text(load(RESULTS)[0], kind), AGAIN


def test_pages_have_the_tables_and_the_sentences_of_the_rows() -> None:
    made, _ = load(RESULTS)
    for section in made:
        page = (RESULTS / f"{slug(section, made)}.md").read_text(encoding="utf-8")
        for ratio in section.ratios():
            assert markdown(table_of(section, ratio)) in page, AGAIN
            found, notes = comparisons(section, ratio)
            assert all(sentence in page for sentence in [*(c.sentence for c in found), *notes]), AGAIN
