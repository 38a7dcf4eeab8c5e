"""What all tasks of a command share: sent to each worker once, and the engine that a worker makes of it once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from mona_infer import __version__
from mona_infer.errors import InputError
from mona_infer.models.file import Model
from mona_infer.segmenter import Segmenter
from mona_infer.segmenting.outputs import Options


@dataclass(frozen=True, eq=False)
class Settings:
    """The model travels as the bytes that were checked, so that no worker can find another one under its name."""

    model: Model
    engine: str
    options: Options
    made: dict[str, Any]  # of the Segmenter: tta, largest, batch, max_ram
    threads: int = 0  # 0: as many as the worker has
    overwrite: bool = False
    version: str = __version__
    key: str = field(default_factory=lambda: secrets.token_hex(4))  # of the command

    def absolute(self) -> Settings:
        """The same for a worker in another folder."""
        maps = self.options.probabilities
        return self if maps is None else replace(self, options=replace(self.options, probabilities=maps.absolute()))

    def check_version(self) -> None:
        if self.version != __version__:
            raise InputError(
                f"this worker has mona {__version__}, but the command has {self.version}; install the same"
            )

    def segmenter(self, threads: int) -> Segmenter:
        # As in `mona segment`, scans are looked at when they are read, so the engine need not refuse them again.
        threads = self.threads or threads
        return Segmenter(self.model, engine=self.engine, force=True, threads=threads, **self.made)
