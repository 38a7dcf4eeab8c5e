"""One reader each: `seeds()` are valid inputs, `read(data, folder)` reads an input as a command would.

The first byte of an input chooses how the rest is presented (a file name, a container); the rest is the file.
"""

from importlib import import_module
from types import ModuleType

# Those that load torch come last.
NAMES = ("nifti", "text_headers", "dicom", "model", "run_toml", "checkpoint")
BUDGET = 64 << 20  # of memory for one volume: more than any seed needs, little enough to notice a lie


def target(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")
