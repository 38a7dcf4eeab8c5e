"""The presets that `--preset` chooses from: values that differ from the settings' defaults, which are the paper's.

`paper` is method 3.6 and 4.8; docs/results.md tells how `cpu` was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mona_infer.errors import InputError
from mona_train.config.schema import Batch, Config, Every, Optimiser

AUTO = "auto"  # precision: that of the processor, see `half_precision`


@dataclass(frozen=True)
class Preset:
    summary: str  # one line
    values: dict[str, Any]
    pretrain: str = "default"  # of a method with pre-training: its own, or another stage


LABELS_ALONE = ("supervised", "copy-paste", "gcl-finetune", "scs-finetune", "plc-baseline")  # stages
CONTRASTIVE = ("glcon", "moco", "knn-moco", "simclr", "byol", "isd")
# What docs/results.md measured: slices at one scale, the organ in the middle, one orientation; labelled slices pasted
# into each other, then into unlabelled ones; the average of the weights as the answer.
FITTED: dict[str, Any] = {
    "pixels": 256,
    "window": "auto",
    "augmentation": "fitted",
    "average": True,
    "post_process": True,
    "precision": AUTO,
    "optimiser": Optimiser(kind="adamw", lr=1e-3, weight_decay=0.01, power=1.0, warmup=0.005, hold=0.7, over="run"),
    "batch": Batch(6, 6),
    "stages": {
        **{name: {"scale": 1.0, "copy_paste": True} for name in LABELS_ALONE},
        **{name: {"copy_paste": True} for name in CONTRASTIVE},
        # On top of mixing, tailness and diversity did not help; consistency may, at twice the time (docs/results.md).
        "acr": {
            "mix": "bcp",
            "pseudo": "plain",
            "unsupervised_weight": 0.5,
            "principles": (),
            "dim": 256,
            "queries": 128,
            "keys": 256,
        },
    },
}
CPU: dict[str, Any] = {
    **FITTED,
    "steps": 6000,
    "pretrain_share": 0.2,
    "every": Every(validate=500, log=10, save=100),
}
QUICK: dict[str, Any] = {
    **CPU,
    "pixels": 192,
    "steps": 4000,
    "batch": Batch(4, 4),  # as good as 6 + 6 and a quarter less time (docs/results.md)
    "pretrain_share": 0.25,
    "every": Every(validate=500, log=10, save=50),
}
GPU: dict[str, Any] = {**CPU, "batch": Batch(12, 12), "steps": 30_000}
PRESETS: dict[str, Preset] = {
    "paper": Preset("the paper's setting: 256x256, 60,000 steps; needs a GPU", {}),
    "gpu": Preset("the organ in a window of its own, 30,000 steps of twice the batch", GPU, "supervised"),
    "cpu": Preset("the same with 6,000 steps, for two cores and less than an hour", CPU, "supervised"),
    "quick": Preset("as cpu with fewer pixels, smaller batches, 4,000 steps: ten minutes", QUICK, "supervised"),
}


def preset(name: str, **values: Any) -> Config:
    """The settings of a preset, with some given."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    values = {**PRESETS[name].values, **values}
    if values.get("precision") == AUTO:
        values["precision"] = half_precision()
    return replace(Config(preset=name, dataset=values.pop("dataset")), **values)


def half_precision() -> str:
    """bf16 where the processor computes in it: half the time, the same scores (docs/results.md)."""
    try:
        import torch
    except ModuleNotFoundError:  # data can be prepared without it
        return "32-true"
    if torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    has = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return "bf16-mixed" if has() else "32-true"


def preferred_pretraining(name: str) -> str:
    return PRESETS[name].pretrain if name in PRESETS else "default"


def with_stages(config: Config, kinds: dict[str, Any]) -> Config:
    """The settings of each stage (name -> dataclass): its own defaults, and what the preset says of it."""
    preferred = PRESETS[config.preset].values.get("stages", {})
    return replace(config, stages={name: kind(**preferred.get(name, {})) for name, kind in kinds.items()})
