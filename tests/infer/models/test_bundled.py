"""Models that come with mona: found by name, the best by default, each with the card that was made for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import bundles, models

from mona_infer import InputError, Segmenter, Volume
from mona_infer.models import bundled
from mona_infer.models.card import read_card
from mona_infer.models.file import read_model
from mona_infer.models.find import find_model, named_model

AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])
REAL = bundled.bundled()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_MODEL", raising=False)
    with bundles.stand_ins(tmp_path / "mona" / "bundled") as found:
        yield found


def test_the_best_is_first_and_a_model_without_a_card_is_none(folder: Path) -> None:
    models.write(folder / "stray.onnx")
    (folder / "LICENCE.md").write_text("terms of them all")
    assert [card.name for card in bundled.bundled()] == ["all", "few"]
    assert bundled.best() == folder / "all.onnx" and bundled.path_of("stray") is None
    assert read_model(folder / "stray.onnx").card is None
    card = read_model(folder / "few.onnx").card
    assert card is not None and (card.dsc, card.classes) == (0.85, {"RV": 0.8, "LV": 0.9})
    assert card.text.startswith("# few\n\nA whole card.")
    for word in ("few", "0.850", "10 patients", "for research"):
        assert word in card.describe()


def test_what_goes_before_what(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model() == folder / "all.onnx"
    assert find_model(Path("few")) == folder / "few.onnx"
    (tmp_path / "runs/one").mkdir(parents=True)
    own = models.write(tmp_path / "runs/one/model.onnx")
    assert find_model().resolve() == own
    monkeypatch.setenv("MONA_MODEL", "few")
    assert find_model() == folder / "few.onnx"
    (tmp_path / "few").mkdir()  # a run that is called like a bundled model
    assert find_model() == folder / "few.onnx"
    models.write(tmp_path / "few/model.onnx")
    assert find_model().resolve() == tmp_path / "few/model.onnx"
    for name in ("fewer", "some/few", "few.onnx"):
        with pytest.raises(InputError, match=r"does not exist; models that come with mona: all, few"):
            named_model(name)


def test_without_any_model_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MONA_MODEL", raising=False)
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    for look in (find_model, Segmenter):
        with pytest.raises(InputError, match="mona export"):
            look()


def test_a_segmenter_by_name_or_the_best(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "runs/one").mkdir(parents=True)
    models.write(tmp_path / "runs/one/model.onnx")
    scan = Volume(models.scan(), AFFINE)
    wanted = Segmenter(tmp_path / "runs/one/model.onnx")(scan).voxels
    best, few, run = Segmenter(), Segmenter("few"), Segmenter("runs/one")
    assert [s.model and s.model.label for s in (best, few, run)] == ["all", "few", "runs/one/model.onnx"]
    for segmenter in (best, few, run):
        np.testing.assert_array_equal(segmenter(scan).voxels, wanted)


def test_a_segmenter_refuses_what_its_card_excludes_unless_forced(folder: Path) -> None:
    brain = Volume(models.scan(0, (60, 70, 30)), np.diag([1.0, 1.0, 1.0, 1.0]), source="brain.nii")
    with pytest.raises(InputError, match=r"brain\.nii is not a stack of bands.*30 slices 1 mm apart.*--force"):
        Segmenter()(brain)
    ct = Volume(models.scan(), AFFINE, modality="CT")
    with pytest.raises(InputError, match=r"is CT .*; train a model on scans like this one"):
        Segmenter("few")(ct)
    assert Segmenter(force=True)(brain).voxels.any() and Segmenter(force=True)(ct).voxels.any()


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda text: text.replace('sha256 = "', 'sha256 = "0'), "is the card of another model than few.onnx"),
        (lambda text: "# few\n" + text, "is not a model card (it does not begin with +++)"),
        (lambda text: text.replace("dsc = 0.85", 'dsc = "good"'), "is not a model card"),
        (lambda text: text.replace("[scans]", "[scan]"), "is not a model card"),
        (lambda text: text.replace("[1, 50]", "50"), "is not a model card"),
        (lambda text: text.replace("+++", "---"), "is not a model card"),
        (lambda text: "+++\n= 3\n+++\n", "is not a model card"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(folder: Path, harm, why: str) -> None:
    path = folder / "few.md"
    path.write_text(harm(path.read_text()))
    with pytest.raises(InputError) as told:
        read_model(folder / "few.onnx")
    assert why in str(told.value) and str(path) in str(told.value) and "\n" not in str(told.value)


@pytest.mark.skipif(not REAL, reason="no model comes with this clone yet")
@pytest.mark.parametrize("card", REAL, ids=lambda card: card.name)
def test_a_real_one_is_small_certified_and_as_its_card_says(card) -> None:
    model = read_model(card.model)
    assert model.card == read_card(card.model.with_suffix(".md"))
    assert len(model.content) < 4_000_000 and model.precision == "fp16"
    certificate, measured = model.facts["certificate"], model.facts["metrics"]["validation"]
    assert certificate["passed"] and certificate["first_look"]["voxels_changed"] == 0
    assert card.dsc == pytest.approx(measured["dsc"], abs=5e-5)
    assert card.classes == pytest.approx(measured["classes"], abs=5e-5)
    assert card.licence == "CC-BY-NC-SA-4.0" and "CC BY-NC-SA 4.0" in card.terms and "clinical" in card.terms
    for word in ("mona train --dataset acdc", "--seed", "commit", "not for", "spacing", "95 % interval", model.seal):
        assert word.lower() in card.text.lower(), word
    assert "/tmp" not in card.text and str(Path.home()) not in card.text
    scan = Volume(models.scan(0, (216, 256, 8)), np.diag([-1.5, -1.5, 10.0, 1.0]))
    assert Segmenter(model, threads=1)(scan).shape == scan.shape
