"""TensorBoard's view of a run; without tensorboard installed, nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer.io.atomic import writing


class Board:
    """Event files in the run's folder; nowhere, where the folder is None.

    purge: the steps already done.  What an earlier process wrote about later ones, before it was killed, is
    marked so that TensorBoard drops it.
    """

    def __init__(self, folder: Path | None, *, purge: int = 0) -> None:
        self._folder, self._purge = folder, purge
        self._writer: Any = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if self._open():
            with writing(self._events):
                for name, value in values.items():
                    self._writer.add_scalar(name, value, step)

    def picture(self, step: int, name: str, picture: NDArray[np.uint8]) -> None:
        """rows columns 3"""
        if self._open():
            with writing(self._events):
                self._writer.add_image(name, picture, step, dataformats="HWC")

    def close(self) -> None:
        if self._writer is not None:
            with writing(self._events):
                self._writer.close()

    @property
    def _events(self) -> Path:
        return Path(self._writer.get_logdir()) / "events.out.tfevents"

    def _open(self) -> bool:
        """Import and begin only when there is something to write: tensorboard takes a second to import."""
        if self._writer is None and self._folder is not None:
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # tensorboard imports TensorFlow where it finds it
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # which announces these
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                self._folder = None
                return False
            self._writer = SummaryWriter(str(self._folder), purge_step=self._purge + 1)
        return self._writer is not None
