"""What may stand in one table, beside which published number, and what is said about it."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from helpers.bench_results import LEVELS, line, write

from mona_train.bench.comparisons import baseline, comparisons, subject
from mona_train.bench.gaps import gaps
from mona_train.bench.page import current, slug
from mona_train.bench.published import published
from mona_train.bench.reading import read_results
from mona_train.bench.sections import Section, sections
from mona_train.bench.table import table_of


def made(tmp_path: Path, lines: list[dict[str, Any]], **options: Any) -> list[Section]:
    return sections(read_results(write(tmp_path / "results.jsonl", lines))[0], **options)


def cells(section: Section, ratio: float = 0.05) -> dict[str, dict[str, Any]]:
    return {str(row["method"]): row for row in table_of(section, ratio).rows}


def test_seeds_are_put_together_with_their_spread(tmp_path: Path) -> None:
    lines = [line("mona", seed=s, seconds=60.0 * (s + 1)) for s in range(3)] + [line("unet-l")]
    [section] = made(tmp_path, lines)
    row, dscs = cells(section)["MONA"], [each["scores"]["validation"]["best"]["dsc"] for each in lines[:3]]
    assert row["seeds"] == 3 and row["minutes"] == 2
    assert row["core_minutes"] == pytest.approx((540 + 10 * len("mona")) / 60)
    assert row["dsc"] == pytest.approx(sum(dscs) / 3)
    assert (row["dsc_lowest"], row["dsc_highest"]) == (min(dscs), max(dscs))
    assert row["dsc_spread"] == pytest.approx(max(dscs) - min(dscs))
    assert cells(section)["UNet-L"]["dsc_spread"] is None


def test_published_numbers_stand_beside_the_rows_they_are_of(tmp_path: Path) -> None:
    lines = [line(m, ratio=r) for m in ("unet-l", "mean-teacher", "mona", "bcp") for r in (0.01, 0.1)]
    [section] = made(tmp_path, [*lines, line("unet-f", ratio=0.1)])
    at = cells(section, 0.1)
    assert (at["MT"]["dsc_published"], at["MT"]["asd_published"]) == (0.801, 2.33)
    assert at["MONA"]["dsc_published"] == 0.907
    assert at["BCP"]["dsc_published"] is None  # not in the paper
    assert cells(section, 0.01)["MONA"]["dsc_published"] == 0.826
    # all labels, whatever the ratio: trained once, shown at each, and never the best
    assert cells(section, 0.01)["UNet-F (all labels)"]["dsc_published"] == 0.915
    table = table_of(section, 0.01)
    dsc = next(c for c in table.columns if c.key == "dsc")
    assert [row["method"] for row in table.rows if table.bold(row, dsc)] == ["MONA"]


def test_every_printed_number_is_read_and_found_by_the_row_it_is_of() -> None:
    text = files("mona_train.bench").joinpath("published.json").read_text()
    assert 2 * len(published()) == sum(text.count(f'"{metric}"') for metric in ("dsc", "asd")) == 698
    assert len({(c.table, c.name, c.dataset, c.ratio) for c in published()}) == len(published())
    full = next(c for c in published() if c.table == "components" and len(c.principles or ()) == 3)
    assert full.dsc == json.loads(text)["component_ablation"]["rows"][full.name]["dsc"] / 100 == 0.888


@pytest.mark.parametrize(
    ("table", "values", "dsc"),
    [
        ("components", {"principles": ["consistency", "tailness"]}, 0.881),
        ("components", {"principles": []}, None),  # the paper's "Vanilla" has no fine-tuning
        ("frameworks", {"pretrain": "byol"}, 0.853),
        ("frameworks", {"method": "byol", "pretrain": "none"}, 0.659),
        ("frameworks", {"pretrain": "glcon"}, 0.888),
        ("principles", {"pretrain": "isd", "principles": ["diversity"]}, 0.771),
        ("augmentation", {"student": "weak", "teacher": "strong"}, 0.864),
        ("my-list", {}, 0.888),
        ("my-list", {"settings": {"acr.mix": "cutmix"}}, None),  # a variant is not what the paper measured
    ],
)
def test_rows_of_the_other_tables_find_their_number(
    tmp_path: Path, table: str, values: dict[str, Any], dsc: float | None
) -> None:
    [section] = made(tmp_path, [line(**{"method": "mona", "table": table, **values})])
    [row] = table_of(section, 0.05).rows
    assert row["dsc_published"] == dsc


def test_rows_of_other_code_preset_data_or_commit_are_never_mixed_silently(tmp_path: Path) -> None:
    old = [line(m, code="01d", commit="0000000") for m in ("unet-l", "mona")]
    new = [line(m) for m in ("unet-l", "mona")]
    others = [line("bcp", preset="cpu", steps=6000), line("em", content="other data")]
    found = made(tmp_path, [*old, *new, *others])
    assert [(s.preset, s.code[:3], len(s.entries)) for s in found] == [
        *(("cpu", "c0d", 1), ("quick", "c0d", 1), ("quick", "c0d", 2), ("quick", "01d", 2)),
    ]
    for section in found:
        assert len({(row.code, row.preset, row.content) for row in section.rows}) == 1
    assert comparisons(found[0], 0.05) == ([], [])  # what BCP reached at cpu is compared with nothing at quick

    mixed = made(tmp_path, [*old, *new], any_code=True)
    assert [e.label for e in mixed[0].entries] == [
        *("UNet-L, code 01d", "MONA, code 01d", "UNet-L, code c0de000", "MONA, code c0de000"),
    ]
    table = table_of(mixed[0], 0.05)
    assert {row["code"] for row in table.rows} == {"01d", "c0de000"}
    assert any("DIFFERENT CODE" in note for note in table.notes)

    same_code = made(tmp_path, [line("unet-l", commit="1111111"), line("mona", commit="2222222")])
    assert any("commits 1111111 and 2222222" in note for note in table_of(same_code[0], 0.05).notes)
    unknown = made(tmp_path, [line("mona", code="unknown")])
    assert any("was not recorded" in note for note in table_of(unknown[0], 0.05).notes)


def test_rows_of_other_settings_are_entries_of_their_own(tmp_path: Path) -> None:
    rows = [line("mona"), line("mona", settings={"acr.mix": "cutmix"}), line("unet-l")]
    [section] = made(tmp_path, rows)
    assert {e.label for e in section.entries} == {"MONA", "MONA, acr.mix=cutmix", "UNet-L"}
    ours = subject(section.at(0.05))
    assert ours is not None and ours.first.settings == {}


def test_a_method_that_was_trained_longer_is_not_called_better(tmp_path: Path) -> None:
    """It stands in a table of its own, and is compared with nothing that had fewer steps."""
    long, short = made(tmp_path, [line("mona"), line("bcp", steps=1500), line("unet-l", steps=1500)])
    assert long.title == "ACDC, preset quick" and short.title == "ACDC, preset quick with 1,500 steps"
    assert [slug(s, [long, short]) for s in (long, short)] == ["acdc-quick", "acdc-quick-1500-steps"]
    assert comparisons(long, 0.05)[0] == [] and comparisons(short, 0.05) == ([], [])
    assert len(current([long, short])) == 2
    assert table_of(short, 0.05).facts["steps"] == 1500


def test_what_was_changed_in_all_rows_is_said_once(tmp_path: Path) -> None:
    both = {"width": 0.25, "size": [32, 32]}
    ours = [{**both, "acr.ring": 128, "acr.mix": mix} for mix in ("bcp", "cutmix")]
    [section] = made(tmp_path, [line("unet-l", settings=both), *(line("mona", settings=s) for s in ours)])
    assert {e.label for e in section.entries} == {"UNet-L", "MONA, acr.mix=bcp", "MONA, acr.mix=cutmix"}
    [note] = [note for note in table_of(section, 0.05).notes if note.startswith("Changed")]
    assert note == "Changed from the preset: acr.ring=128 (MONA), size=32,32, width=0.25."


def test_the_budget_is_said_in_words(tmp_path: Path) -> None:
    [section] = made(tmp_path, [line("mona", seconds=600.0), line("unet-l", seconds=1200.0)])
    budget, measured, code = table_of(section, 0.05).notes
    assert budget == (
        "Preset quick: 4,000 steps in all, 10 to 20 minutes a row on a processor, 2 cores (1 thread), bf16-mixed."
    )
    assert "20 volumes of 10 patients" in measured
    assert code == "mona 0.9, commit abc1234, code c0de000."


def test_mona_is_compared_with_labels_alone_mixing_and_the_best_rival(tmp_path: Path) -> None:
    lines = [line(m, seed=s) for m in LEVELS for s in (0, 1)]
    [section] = made(tmp_path, lines)
    found, notes = comparisons(section, 0.05)
    assert [(c.role, c.theirs.label) for c in found] == [
        *(("labels alone", "UNet-L"), ("the best rival, mixing as published", "BCP")),
    ]
    assert notes == ["MONA has no principle switched on here, so it is mixing alone."]
    d = found[0].difference
    assert (d.verdict, d.patients, d.cases) == ("better", 10, 20)
    ours, theirs = (cells(section)[name]["dsc"] for name in ("MONA", "UNet-L"))
    assert d.mean == pytest.approx(ours - theirs)
    assert found[0].sentence.startswith("MONA is better than labels alone (UNet-L): +0.0")
    assert found[0].sentence.endswith("over 10 patients.")


def test_sentences_say_what_seeds_say(tmp_path: Path) -> None:
    [section] = made(tmp_path, [line("mona", 0.9), line("unet-l", 0.8), line("bcp", 0.9, seed=0)])
    assert all("one seed each" in c.sentence for c in comparisons(section, 0.05)[0])
    jumping = [
        line(m, level, seed=s) for m, *by in (("mona", 0.9, 0.83), ("unet-l", 0.8, 0.84)) for s, level in enumerate(by)
    ]
    [section] = made(tmp_path, jumping)
    [comparison, *_] = comparisons(section, 0.05)[0]
    assert comparison.difference.verdict == "better"
    assert comparison.sentence.endswith("; but the seeds of both overlap.")


def test_with_principles_the_row_without_is_mixing_alone(tmp_path: Path) -> None:
    rows = [line("mona", 0.9, principles=["tailness"]), line("mona", 0.88, principles=[])]
    [section] = made(tmp_path, [{**row, "table": "components"} for row in rows])
    [comparison], notes = comparisons(section, 0.05)
    assert (comparison.role, comparison.theirs.label) == ("mixing alone", "MONA, no principle")
    assert notes == []
    base = baseline(section, section.at(0.05))
    assert base is not None and base.label == "MONA, no principle"
    [alone] = made(tmp_path, [rows[0]])
    assert "Mixing alone (`--principles ''`) was not measured here." in comparisons(alone, 0.05)[1]


def test_other_cases_are_not_compared(tmp_path: Path) -> None:
    [section] = made(tmp_path, [line("mona"), line("unet-l", patients=9)])
    found, notes = comparisons(section, 0.05)
    assert found == []
    assert "MONA and UNet-L were not measured on the same cases one by one." in notes


def test_what_was_not_run_is_named_with_its_command(tmp_path: Path) -> None:
    methods = sorted({c.method for c in published() if c.table == "acdc"} - {"em"})
    found = made(tmp_path, [line(m, ratio=r) for m in methods for r in (0.01, 0.05, 0.1) if (m, r) != ("plc", 0.1)])
    by_table = {gap.table: gap for gap in gaps(found)}
    acdc = by_table["acdc"]
    assert (acdc.measured, acdc.printed) == (47, 51)
    assert acdc.missing == "EM at 1 %, EM at 5 %, EM at 10 %, PLC at 10 %"
    assert acdc.command == "mona bench acdc"
    assert (by_table["lits"].missing, by_table["lits"].command) == ("nothing was run", "mona bench lits")
    everything = made(tmp_path, [line(c.method, ratio=c.ratio) for c in published() if c.table == "acdc"])
    assert "acdc" not in {gap.table for gap in gaps(everything)}
