"""Rows and their keys, the paper's tables, own lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mona_train.bench
from mona_infer.errors import InputError
from mona_train.bench.grids import Grid, Narrowing, rows_of
from mona_train.bench.lists import read_list
from mona_train.bench.rows import Row, changed, config_key, pretraining_key, principles_of, row_key, views_of
from mona_train.bench.tables import FRAMEWORKS, METHODS, SUMMARIES, tables
from mona_train.config.toml import with_value
from mona_train.methods.registry import methods, pretraining
from mona_train.run.code import code_hash

ROW = Row("acdc", "acdc", "mona", "quick", 0.05)
PUBLISHED = json.loads((Path(mona_train.bench.__file__).parent / "published.json").read_text())


# ---- keys


def test_every_setting_the_data_and_the_code_are_in_the_key() -> None:
    config = ROW.config
    key = row_key(config, "data", "code")
    others = [
        row_key(config, "other data", "code"),
        row_key(config, "data", "other code"),
        *(row_key(replace(config, **{name: value}), "data", "code") for name, value in CHANGES.items()),
        row_key(with_value(config, "acr.sure", "0.5"), "data", "code"),
        row_key(with_value(config, "optimiser.lr", "0.5"), "data", "code"),
    ]
    assert len({key, *others}) == len(others) + 1
    assert row_key(replace(config, data="/elsewhere"), "data", "code") == key  # data may move


CHANGES: dict[str, Any] = {"seed": 1, "ratio": 0.1, "steps": 3, "width": 0.5, "split_seed": 1, "preset": "cpu"}


def test_rows_share_a_pretraining_if_only_their_last_stage_differs() -> None:
    config = ROW.config
    key = pretraining_key(config, "data", "code")
    assert key == pretraining_key(with_value(config, "acr.principles", "consistency"), "data", "code")
    assert key == pretraining_key(replace(ROW, views="weak/weak").config, "data", "code")  # acr's alone: labels before
    for other in (with_value(config, "supervised.copy_paste", "false"), replace(config, seed=1)):
        assert pretraining_key(other, "data", "code") != key
    assert pretraining_key(replace(ROW, pretrain="glcon").config, "data", "code") != key
    assert pretraining_key(replace(ROW, method="unet-l").config, "data", "code") is None


def test_what_a_line_says_of_its_settings() -> None:
    row = replace(ROW, principles="tailness", views="weak/strong", steps=9, settings=(("optimiser.lr", "0.5"),))
    config = row.config
    assert changed(config) == {"optimiser.lr": 0.5}  # steps, principles and views have columns of their own
    assert principles_of(config) == ["tailness"] and views_of(config) == ("weak", "strong")
    assert changed(ROW.config) == {} and row.pretraining == "supervised"
    assert row.name == "mona, after supervised, tailness, weak/strong, 5 %, seed 0"
    published = replace(ROW, preset="paper", views="weak/strong").config
    assert published.stages["glcon"].student == published.stages["acr"].student == "weak"
    assert changed(published) == {}


def test_the_code_is_what_numbers_depend_on(tmp_path: Path) -> None:
    for name in (
        "mona_kernels/csrc/a.cpp",
        "mona_kernels/csrc/a.hpp",
        "mona_train/losses/b.py",
        "mona_infer/evaluation/metrics.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
        before = code_hash.__wrapped__(tmp_path)
        path.write_text("2")
        assert code_hash.__wrapped__(tmp_path) != before
    before = code_hash.__wrapped__(tmp_path)
    for name in ("mona_train/bench/plots.py", "mona_infer/viewing/page.py", "mona_train/data/prepare.py", "docs/a.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("1")
        assert code_hash.__wrapped__(tmp_path) == before
    assert len(code_hash()) == 16


# ---- tables


def test_the_tables_have_the_rows_that_the_paper_printed() -> None:
    printed = PUBLISHED["acdc_lits_main"]["ACDC"]
    counts = {
        "acdc": sum(map(len, printed.values())),
        "lits": sum(map(len, PUBLISHED["acdc_lits_main"]["LiTS"].values())),
        "mmwhs": sum(map(len, PUBLISHED["mmwhs_main"]["MMWHS"].values())),
        "components": len(PUBLISHED["component_ablation"]["rows"]),
        "augmentation": len(PUBLISHED["aug_ablation"]["rows"]["ACDC"]),
        "frameworks": 36,  # six, each alone and with fine-tuning, at three ratios
        "principles": sum(len(r) for f in PUBLISHED["cl_principle_comparsion"]["rows"].values() for r in f.values()),
    }
    found = {name: len(rows_of(grids, Narrowing(preset="paper"))) for name, grids in tables().items()}
    assert found == counts and counts["acdc"] == 51 and counts["principles"] == 144
    assert SUMMARIES.keys() == tables().keys()
    assert len(METHODS) == len(printed) and set(METHODS) <= methods().keys() and set(FRAMEWORKS) <= pretraining().keys()


@pytest.mark.parametrize("preset", ["paper", "quick"])
def test_every_row_of_every_table_has_settings_of_its_own(preset: str) -> None:
    for grids in tables().values():
        rows = rows_of(grids, Narrowing(preset=preset, data="somewhere"))
        assert len({config_key(row.config) for row in rows}) == len({row.name for row in rows}) == len(rows)


def test_options_narrow_a_table_or_change_it() -> None:
    grids = tables()["acdc"]
    asked = Narrowing(methods=("mona", "bcp"), ratios=(0.2,), seeds=(0, 1), preset="quick", steps=7)
    rows = rows_of(grids, asked)
    # one seed after the other; bcp is not in the paper's table
    assert [(r.seed, r.method, r.ratio) for r in rows] == [(s, m, 0.2) for s in (0, 1) for m in ("mona", "bcp")]
    assert {r.config.steps for r in rows} == {7} and {r.config.preset for r in rows} == {"quick"}
    assert rows_of(tables()["components"], Narrowing(methods=("bcp",))) == []
    assert {r.method for r in rows_of(tables()["frameworks"], Narrowing(methods=("moco",)))} == {"moco"}


# ---- own lists

GOOD = """
dataset = "acdc"
preset = "quick"
seeds = [0, 1]
settings = { optimiser.lr = 0.5, average = false }
[rows.ours]
principles = ["", "tailness,consistency"]
settings = { optimiser.lr = 0.25, size = [64, 64], pixels = 0 }
[rows.rivals]
methods = ["bcp", "unimatch"]
ratios = [0.1]
steps = 9
"""


def lists(path: Path, text: str) -> tuple[Grid, ...]:
    (path / "mine.toml").write_text(text)
    return read_list(path / "mine.toml", "cpu")


def test_a_list(tmp_path: Path) -> None:
    rows = rows_of(lists(tmp_path, GOOD), Narrowing())
    assert len(rows) == 8 and {row.table for row in rows} == {"mine"}
    ours, rivals = ([row for row in rows if (row.method == "mona") == want] for want in (True, False))
    assert {row.config.optimiser.lr for row in ours} == {0.25} and {row.config.optimiser.lr for row in rivals} == {0.5}
    assert {row.config.size for row in ours} == {(64, 64)} and not any(row.config.average for row in rows)
    assert {row.config.steps for row in rivals} == {9} and {row.ratio for row in rivals} == {0.1}
    assert [principles_of(row.config) for row in ours[:2]] == [[], ["tailness", "consistency"]]
    assert {row.preset for row in rows} == {"quick"}
    assert {row.preset for row in rows_of(lists(tmp_path, GOOD.replace("quick", "cpu")), Narrowing())} == {"cpu"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("seeds", "seedz"), "unknown setting seedz; did you mean seeds?"),
        (("methods", "method"), "unknown setting rows.rivals.method; did you mean rows.rivals.methods?"),
        (("[0, 1]", '["a"]'), 'seeds: expected any number of values, each a whole number, found ["a"]'),
        (("seeds = [0, 1]", "seeds = 0"), "seeds: expected any number of values"),
        (('"bcp"', '"bcpp"'), "unknown method 'bcpp'; did you mean bcp?"),
        (
            ("optimiser.lr = 0.5", "optimiser.lx = 0.5"),
            "row mona: --set optimiser.lx: unknown setting; choose one of optimiser.kind",
        ),
        (("optimiser.lr = 0.5", 'optimiser.lr = "fast"'), "expected a number"),
        (('"tailness,consistency"', '"tallness"'), "unknown principle tallness"),
        (('preset = "quick"', 'preset = "quickly"'), "unknown preset 'quickly'"),
        (("[rows.ours]", "[rows.ours]\nviews = ['strong']"), "expected views as STUDENT/TEACHER"),
        (("[rows.rivals]", "[rows.rivals]\nprinciples = ['tailness']"), "bcp has no principles to choose"),
        (("[rows.rivals]", "[rows.rivals]\nviews = ['weak/weak']"), "no views of student and teacher"),
        (('dataset = "acdc"', ""), "dataset is missing"),
        (("[rows.ours]", "[rows.ours"), "is not TOML"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_wrong_with_a_list_is_one_sentence(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(InputError) as refused:
        for row in rows_of(lists(tmp_path, text), Narrowing()):
            assert row.config
    assert words in str(refused.value)


def test_a_list_without_rows_or_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lists no rows; add a table such as \[rows.ours\]"):
        lists(tmp_path, 'dataset = "acdc"')
    with pytest.raises(InputError, match="cannot be read"):
        read_list(tmp_path / "no.toml", "cpu")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not TOML"):
        read_list(tmp_path / "binary.toml", "cpu")


def test_the_list_in_the_docs_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()
    (text,) = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    rows = rows_of(lists(tmp_path, text), Narrowing())
    assert "trains twelve rows" in page and len({config_key(row.config) for row in rows}) == 12
