"""Scans in, masks and numbers out: NumPy and engine runtimes, never torch.

Imports point one way: mona_train -> mona_infer -> mona_kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mona_infer.errors import CheckFailed, InputError, MissingPart, MonaError

if TYPE_CHECKING:
    from mona_infer.io.read import read_frames, read_volume
    from mona_infer.segmenter import Segmenter
    from mona_infer.task import Task
    from mona_infer.volume import Volume

__version__ = "0.1.0"
__all__ = [
    "CheckFailed",
    "InputError",
    "MissingPart",
    "MonaError",
    "Segmenter",
    "Task",
    "Volume",
    "__version__",
    "read_frames",
    "read_volume",
]

_MODULES = {
    "Segmenter": "segmenter",
    "Task": "task",
    "Volume": "volume",
    "read_frames": "io.read",
    "read_volume": "io.read",
}


def __getattr__(name: str) -> Any:
    """Import what needs NumPy only on first use: `mona --help` does without it."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mona_infer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"mona_infer.{_MODULES[name]}"), name)
