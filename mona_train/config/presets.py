"""The presets that `--preset` chooses from: values that differ from the settings' defaults, which are the paper's.

`paper` is method 3.6 and 4.8; docs/results.md tells how `cpu` was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mona_infer.errors import InputError
from mona_train.config.schema import Config, Every, Optimiser


@dataclass(frozen=True)
class Preset:
    summary: str  # one line
    values: dict[str, Any]


# In a short run the network is far from right for most of the steps: losses that ask it to agree with itself hold it
# back, and what pre-training learned is lost if fine-tuning starts at the full learning rate again.
# docs/results.md has the gradients and scores that these values come from.
SHORT = {
    "glcon": {"global_weight": 0.01, "local_weight": 0.01},
    "acr": {
        "labelled": "jittered",
        "lr": 1e-3,
        "equivariance_weight": 0.03,
        "neighbours_weight": 0.03,
        # its slices have a seventh of the paper's pixels
        "dim": 256,
        "queries": 128,
        "keys": 256,
    },
}
CPU: dict[str, Any] = {
    "size": (128, 128),
    "window": "auto",
    "steps": 8000,
    "pretrain_share": 0.4,
    "optimiser": Optimiser(kind="adamw", lr=2e-3, weight_decay=0.01, warmup=0.05),
    "every": Every(validate=200, log=10, save=50),
    "stages": SHORT,
}
PRESETS: dict[str, Preset] = {
    "paper": Preset("the paper's setting: 256x256, 60,000 steps; needs a GPU", {}),
    "gpu": Preset("the paper's setting in mixed precision", {"precision": "bf16-mixed"}),
    "cpu": Preset("smaller slices and 8,000 steps, for two cores and less than an hour", CPU),
    "quick": Preset("as cpu with 800 steps, to try things out", {**CPU, "steps": 800}),
}


def preset(name: str, **values: Any) -> Config:
    """The settings of a preset, with some given."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    return replace(Config(preset=name, dataset=values.pop("dataset")), **{**PRESETS[name].values, **values})


def with_stages(config: Config, kinds: dict[str, Any]) -> Config:
    """The settings of each stage (name -> dataclass): its own defaults, and what the preset says of it."""
    preferred = PRESETS[config.preset].values.get("stages", {})
    return replace(config, stages={name: kind(**preferred.get(name, {})) for name, kind in kinds.items()})
