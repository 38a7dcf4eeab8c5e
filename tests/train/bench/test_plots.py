"""What plots draw, as numbers; and that each is drawn, the same each time, in the same colours."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from helpers.bench_results import LEVELS, line, write

from mona_train.bench.comparisons import compare
from mona_train.bench.panels import around_organ, shown, three_cases
from mona_train.bench.plots.curves import by_ratio, named
from mona_train.bench.plots.forest import forest
from mona_train.bench.plots.minutes import places
from mona_train.bench.plots.ranks import rank_pairs
from mona_train.bench.reading import read_results
from mona_train.bench.sections import Section, sections


def section_of(tmp_path: Path, lines: list[dict[str, Any]]) -> Section:
    [section] = sections(read_results(write(tmp_path / "results.jsonl", lines))[0])
    return section


@pytest.fixture
def section(tmp_path: Path) -> Section:
    return section_of(tmp_path, [line(m, seed=s) for m in LEVELS for s in (0, 1)])


def test_the_forest_is_the_difference_from_labels_alone_best_first(section: Section) -> None:
    found = forest(section, 0.05)
    assert found is not None
    assert found.base.label == "UNet-L"
    assert [e.label for e, _ in found.lines] == ["UNet-F", "MONA", "BCP", "PLC", "MT", "EM"]
    for entry, difference in found.lines:
        assert difference == compare(entry, found.base)
        assert difference.mean == pytest.approx(entry.dsc - found.base.dsc)


def test_one_row_alone_has_no_forest_and_no_ranks(tmp_path: Path) -> None:
    alone = section_of(tmp_path, [line("mona")])
    assert forest(alone, 0.05) is None
    assert rank_pairs(alone, 0.05) is None


def test_ranks_are_of_the_methods_that_the_paper_has(section: Section) -> None:
    found = rank_pairs(section, 0.05)
    assert found is not None
    # published at 5 %: UNet-F 91.5, MONA 88.8, PLC 70.6, MT 58.3, UNet-L 51.7, EM 59.8; BCP is not there
    assert dict(zip(found.labels, zip(found.paper, found.ours, strict=True), strict=True)) == {
        "UNet-F": (1, 1),
        "MONA": (2, 2),
        "PLC": (3, 3),
        "MT": (5, 4),
        "UNet-L": (6, 5),
        "EM": (4, 6),
    }
    assert found.correlation == pytest.approx(1 - 6 * (1 + 1 + 4) / (6 * 35))


def test_lines_by_ratio_are_of_methods_with_two_ratios_or_more(tmp_path: Path) -> None:
    lines = [line("mona", 0.8 + r, ratio=r) for r in (0.1, 0.01, 0.05)] + [line("bcp"), line("unet-f")]
    found = by_ratio(section_of(tmp_path, lines))
    assert list(found) == ["MONA"]
    assert [x for x, _ in found["MONA"]] == pytest.approx([1, 5, 10])


def test_mona_labels_alone_and_all_labels_are_always_named(tmp_path: Path) -> None:
    many = [line(m, 0.95) for m in ("em", "cct", "dan", "urpc", "dct", "mms", "ict", "uamt")]
    section = section_of(tmp_path, [*many, line("mona", 0.6), line("unet-l", 0.5), line("unet-f", 0.7)])
    found = [e.label for e in named(section.at(0.05))]
    assert len(found) == 7
    assert {"MONA", "UNet-L", "UNet-F"} <= set(found)


def test_labels_of_points_avoid_each_other() -> None:
    apart = {f"method {n}": (100.0, 100.0 + 60 * n) for n in range(3)}
    assert places(apart) == [0, 0, 0]  # to the right of each
    close = {"one": (100.0, 100.0), "two": (112.0, 100.0)}
    assert places(close)[0] != 0  # its label would cover the other point


def test_panels_show_labels_alone_the_best_rival_and_mona_on_three_cases(section: Section) -> None:
    entries = shown(section, 0.05)
    assert [e.label for e in entries] == ["UNet-L", "BCP", "MONA"]
    dsc = [entries[-1].case_dsc[case] for case in three_cases(entries[-1])]
    assert len(dsc) == 3 and dsc == sorted(dsc)
    assert (dsc[0], dsc[-1]) == (min(entries[-1].case_dsc.values()), max(entries[-1].case_dsc.values()))


def test_panels_are_cut_to_what_any_mask_colours() -> None:
    import numpy as np

    image = np.zeros((100, 80, 3), np.uint8)
    answer, reference = image.copy(), image.copy()
    answer[40:50, 30:40] = 200
    reference[44:60, 30:38] = 200
    cut = around_organ([("image", image), ("answer", answer), ("reference", reference)])
    assert {picture.shape for _, picture in cut} == {(40, 20, 3)}  # 20 rows and 10 columns, half as much around
    assert (cut[1][1] == 200).sum() == 300
    assert around_organ([("image", image), ("answer", image)])[0][1].shape == image.shape


# ---- drawn, where matplotlib is installed


def drawn(section: Section, folder: Path) -> dict[str, str]:
    from mona_train.bench.report import report

    written = report([section], folder)
    return {path.name: path.read_text() for path in written if path.suffix == ".svg"}


def test_every_plot_is_drawn_on_a_white_card_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra `bench`)")
    lines = [line(m, ratio=r, seconds=100.0 * (n + 1)) for r in (0.05, 0.1) for n, m in enumerate(LEVELS)]
    section = section_of(tmp_path, [*lines, line("cps", 0.02)])  # failed: it must not flatten the others
    pictures = drawn(section, tmp_path / "a")
    kinds = ("forest", "ranks", "minutes", "classes", "curves")
    assert set(pictures) == {
        *(f"acdc-quick-{r}pc-{kind}.svg" for r in (5, 10) for kind in kinds),
        "acdc-quick-labels.svg",
    }
    assert pictures == drawn(section, tmp_path / "b")
    for text in pictures.values():
        root = ET.fromstring(text)
        assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(490, abs=1)  # 653 pixels
        assert "fill: #ffffff" in text
        assert "#d55e00" in text  # MONA


def test_a_method_has_one_look_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra `bench`)")
    from mona_train.bench.plots.style import looks, spread

    few = section_of(tmp_path, [line(m) for m in ("mona", "plc", "unet-l")])
    many = section_of(tmp_path, [line(m) for m in LEVELS])
    assert looks(few.at(0.05)).items() <= looks(many.at(0.05)).items()
    assert len(set(looks(many.at(0.05)).values())) == len(LEVELS)
    parts = [line("mona", table="components", principles=list(p)) for p in ((), ("a",), ("b",), ("a", "b"))]
    assert len(set(looks(section_of(tmp_path, parts).at(0.05)).values())) == 4
    assert spread([1, 1, 1, 9], 1) == [0, 1, 2, 9]
    assert spread([5, 0, 0.5], 2) == pytest.approx([5, -0.75, 1.25])
