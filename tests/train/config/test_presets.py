"""Presets: the paper's is the settings' defaults, the others keep slices in shape and compute as the processor does."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from mona_infer.errors import InputError
from mona_train.config.presets import PRESETS, half_precision, preset, with_stages
from mona_train.config.schema import Config, Optimiser
from mona_train.methods.registry import stages_of

FITTED = [name for name in PRESETS if name != "paper"]


def test_the_papers_preset_is_the_defaults() -> None:
    assert preset("paper", dataset="acdc") == Config(dataset="acdc")
    assert with_stages(preset("paper", dataset="acdc"), {"acr": stages_of("mona")[-1].Settings}).stages == {
        "acr": stages_of("mona")[-1].Settings()
    }


@pytest.mark.parametrize("name", FITTED)
def test_the_others_keep_the_shape_of_slices_and_answer_with_the_average(name: str) -> None:
    config = preset(name, dataset="acdc")
    assert config.pixels == (192 if name == "quick" else 256) and config.window == "auto"
    assert config.augmentation == "fitted" and not config.mirrors
    assert config.average and config.post_process
    assert (config.optimiser.over, config.optimiser.hold) == ("run", 0.7)
    config = with_stages(config, {stage.name: stage.Settings for stage in stages_of("mona")})
    assert config.stages["acr"].mix == "bcp" and config.stages["glcon"].copy_paste


@pytest.mark.parametrize(
    ("gpu", "supported", "expected"),
    [
        (True, True, "bf16-mixed"),
        (True, False, "16-mixed"),
        (False, True, "bf16-mixed"),
        (False, False, "32-true"),
    ],
)
def test_the_precision_is_that_of_the_processor(
    gpu: bool, supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported, raising=False)
    assert {preset(name, dataset="acdc").precision for name in FITTED} == {expected}
    assert preset("paper", dataset="acdc").precision == "32-true"
    assert preset("cpu", dataset="acdc", precision="16-mixed").precision == "16-mixed"  # what was asked for


def test_without_torch_data_can_still_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert half_precision() == "32-true"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pixels": 15}, "pixels must be from 16 to 4096, or 0 to squeeze slices, found 15"),
        ({"pixels": 5000}, "found 5000"),
        ({"augmentation": "fited"}, "expected an augmentation among published, fitted, found 'fited'"),
        ({"optimiser": Optimiser(hold=1.5)}, "hold"),
        ({"optimiser": Optimiser(hold=-0.1)}, "hold"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        preset("cpu", dataset="acdc", **values)
