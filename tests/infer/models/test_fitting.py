"""Bundled models for several kinds of scan: the scan decides, and the reason is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import bundles, models

from mona_infer import InputError, Segmenter, Volume
from mona_infer.models import bundled
from mona_infer.models.find import chosen_model, find_model
from mona_infer.models.fitting import fitting

THICK, THIN = np.diag([-1.5, -1.5, 8.0, 1.0]), np.diag([-1.5, -1.5, 2.0, 1.0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two models of hearts, and one of livers (CT) with a higher score than either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_MODEL", raising=False)
    with bundles.stand_ins(tmp_path / "bundled") as found:
        bundles.put(found, "liver", 0.95, replace(models.TASK, modality="CT", slices="inferior-superior"))
        card = (found / "liver.md").read_text().replace("a stack of bands", "a CT of the belly")
        card = card.replace("[1, 50]", "[20, 900]").replace("[4, 20]", "[40, 900]").replace("oblique = true", "")
        (found / "liver.md").write_text(card.replace('"slice spacing" = [5, 10]', '"slice spacing" = [0.5, 5]'))
        yield found


def heart(modality: str | None = None, slices: int = 8) -> Volume:
    return Volume(models.scan(0, (40, 36, slices)), THICK, modality=modality, source="heart")


def ct(slices: int = 80, modality: str | None = None) -> Volume:
    return Volume(models.scan(0, (40, 36, slices)) - 1000, THIN, modality=modality, source="belly")


def test_no_score_decides_between_organs(folder: Path) -> None:
    assert [card.name for card in bundled.bundled()] == ["liver", "all", "few"]
    assert [card.name for card in bundled.best_of_each()] == ["liver", "all"]
    assert bundled.best() is None and chosen_model() is None
    for ask in (find_model, Segmenter):
        with pytest.raises(
            InputError, match=r"liver for a CT of the belly, all for a stack of bands.*; choose one by name"
        ):
            ask()
    assert find_model("few") == folder / "few.onnx"


def test_the_scan_decides_and_the_reason_is_told(folder: Path) -> None:
    cards = bundled.best_of_each()
    model, why = fitting(heart(), cards)
    assert model.label == "all"
    assert why == "chose all: the scan can be a stack of bands, not a CT of the belly (it has 8 slices)"
    model, why = fitting(heart("MR", 30), cards)
    assert model.label == "all" and why.endswith("(it is MR, not CT)")
    model, why = fitting(ct(), cards)
    assert model.label == "liver" and "not a stack of bands (it has 80 slices" in why


def test_what_fits_usually_goes_before_what_is_only_possible(folder: Path) -> None:
    volume = Volume(models.scan(0, (40, 36, 22)), np.diag([-1.5, -1.5, 3.0, 1.0]), source="odd")
    with pytest.raises(
        InputError, match=r"odd can be a CT of the belly \(--model liver\) or .* \(--model all\); say which"
    ):
        fitting(volume, bundled.best_of_each())
    card = (folder / "liver.md").read_text().replace("[40, 900]", "[20, 900]")
    (folder / "liver.md").write_text(card)
    model, why = fitting(volume, bundled.best_of_each())
    assert model.label == "liver" and "hardly a stack of bands (" in why


def test_a_scan_for_none_of_them(folder: Path) -> None:
    with pytest.raises(InputError, match=r"pet is a scan for no model .*not a CT of the belly .*not a stack of bands"):
        fitting(Volume(models.scan(), THICK, modality="PT", source="pet"), bundled.best_of_each())


def test_the_command_says_which_one_and_why(folder: Path) -> None:
    nib.save(nib.Nifti1Image(models.scan(0, (40, 36, 8)), THICK), "heart.nii.gz")
    code = (
        "import mona_infer.models.bundled as b; from pathlib import Path; b.FOLDER = Path('bundled')\n"
        "from mona_infer.cli.main import main; main()"
    )
    command = [sys.executable, "-c", code, "segment", "heart.nii.gz", "--out", "mask.nii.gz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "chose all: the scan can be a stack of bands, not a CT of the belly (it has 8 slices)\n"
    )
    assert Path("mask.nii.gz").exists()
