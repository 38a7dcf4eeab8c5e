"""Runs small enough for tests: hearts of 32 x 32 pixels, in memory for the trainer and on disk for `mona train`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from helpers.caches import cases
from helpers.small_settings import QUICK
from helpers.steps import CLASSES, blobs
from mona_infer.task import CARDIAC, Task
from mona_train.config.presets import preset, with_stages
from mona_train.config.schema import Batch, Config, Every, Optimiser
from mona_train.config.toml import with_value
from mona_train.data.cache import Cache
from mona_train.data.split import Split
from mona_train.engine.trainer import Trainer
from mona_train.methods.registry import stages_of

SIDE, SLICES = 32, 4
LABELLED, PATIENTS = 2, 7  # patients with labels to learn from, and all of them
TASK = replace(CARDIAC, name="small", size=(SIDE, SIDE))
QUEUES = {"moco.queue": "24", "knn-moco.queue": "24"}
ADAMW = Optimiser(kind="adamw", lr=2e-3, weight_decay=0.01, warmup=0.25)


def slices_of(patient: int, count: int = SLICES) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Images, brightest where the class is highest but for some noise, and labels: (count, rows, columns)."""
    labels = blobs(count, (SIDE, SIDE), seed=100 + patient).numpy().astype(np.uint8)
    noise = np.random.default_rng(patient).integers(0, 9000, labels.shape)
    return (labels.astype(int) * (56_000 // (CLASSES - 1)) + noise).astype(np.uint16), labels


def small_cache() -> Cache:
    drawn = [slices_of(n) for n in range(PATIENTS)]
    images, labels = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
    found = tuple(cases(PATIENTS, frames=1, slices=SLICES))
    return Cache(Path("nowhere"), "mine", TASK, found, {}, images, labels)


def small_split(labelled: int = LABELLED) -> Split:
    """The first patients with labels, all others without."""
    rows, parted, names = range(PATIENTS * SLICES), labelled * SLICES, [f"p{n:02d}" for n in range(PATIENTS)]
    return Split(
        tuple(rows[:parted]), tuple(rows[parted:]), (), (), tuple(names[:labelled]), tuple(names[labelled:]), "here"
    )


def small_config(method: str = "mona", settings: dict[str, str] | None = None, **values: Any) -> Config:
    """16 steps, half of them pre-training where the method has any; `settings` are those of --set."""
    values = {"steps": 16, "width": 0.25, "size": (SIDE, SIDE), "batch": Batch(2, 6), **values}
    config = preset("paper", dataset="mine", method=method, every=Every(validate=4, log=2, save=4), **values)
    config = with_stages(config, {kind.name: kind.Settings for kind in stages_of(method, config.pretrain)})
    for key, value in (QUICK | QUEUES).items():
        if key.partition(".")[0] in config.stages:
            config = with_value(config, key, value)
    for key, value in (settings or {}).items():
        config = with_value(config, key, value)
    return config


def trainer_of(config: Config, split: Split | None = None, task: Task = TASK) -> Trainer:
    return Trainer(config, small_cache(), split or small_split(), task, Fabric(devices=1, accelerator="cpu"))


def train(trainer: Trainer, until: int | None = None) -> Trainer:
    while trainer.number < (trainer.config.steps if until is None else until):
        trainer.step()
    return trainer


def write_dataset(root: Path, patients: int = PATIENTS, tests: int = 1) -> Path:
    """nnU-Net's layout on disk; the last `tests` patients are for testing."""
    for n in range(patients):
        part = "Ts" if n >= patients - tests else "Tr"
        for folder, ending, voxels in zip(("images", "labels"), ("_0000", ""), slices_of(n), strict=True):
            path = root / f"{folder}{part}" / f"heart{n}{ending}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            stored = voxels.astype(np.float32 if folder == "images" else np.uint8).transpose(2, 1, 0)
            nib.save(nib.Nifti1Image(stored, np.diag([1.5, 1.5, 10.0, 1.0])), path)
    labels = {"background": 0, "RV": 1, "Myo": 2, "LV": 3}
    about = {"channel_names": {"0": "MRI"}, "labels": labels, "numTraining": patients - tests, "file_ending": ".nii.gz"}
    (root / "dataset.json").write_text(json.dumps({"name": "small", **about}))
    return root
