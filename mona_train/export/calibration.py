"""What int8 is calibrated on: slices of training cases, never those that the export is checked on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mona_infer.errors import InputError
from mona_infer.models.file import Model, read_model
from mona_train.data.stream import crop_of
from mona_train.export.parity import Parity, intensities
from mona_train.run.load import Trained

CALIBRATION = 128  # slices
TRAINING = "training cases"  # where those slices are from, as the model file says it


def calibration_slices(folder: Path, trained: Trained, parity: Parity) -> NDArray[np.float32]:
    """Slices that int8 takes its scales from: from training cases, so that the certificate is made on others."""
    try:
        resolved = trained.require_data()
        cache = resolved.open_cache()
    except InputError as error:
        raise InputError(
            f"int8 takes its scales from training slices, and those of {folder} are not at hand ({error}); export "
            f"where they are, or prepare them again with `mona train --resume {folder} --data FOLDER`"
        ) from error
    parts = resolved.split
    certified = {row for case in cache.cases if case.name in parity.cases for row in case.rows}
    rows = np.array(sorted({*parts.labelled, *parts.unlabelled} - certified))
    if not len(rows):
        raise InputError(
            f"{folder}: int8 takes its scales from slices that the export is not checked on, and every case of this "
            "run is needed for the check; export fp32 or fp16, or add a validation or test case to the data set"
        )
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, CALIBRATION).round().astype(np.int64))]
    crop = crop_of(cache, trained.task.window, resolved.corners, resolved.levels)
    return intensities(crop.of(cache.images, chosen, chosen))


def made_before(path: Path, trained: Trained) -> Model | None:
    """An int8 model of these weights with scales from training slices: a run is copied to a GPU without its data."""
    try:
        model = read_model(path)
    except InputError:
        return None
    of = model.facts.get("calibration", {}).get("of"), model.facts.get("run", {}).get("weights")
    return model if of == (TRAINING, trained.weights) else None
