"""The preset that this machine gets where the user names none: `train` takes it, `data prepare` prepares for it."""

from __future__ import annotations


def default_preset() -> tuple[str, str]:
    """Its name, and why."""
    try:
        import torch
    except ModuleNotFoundError:  # data can be prepared without it
        return "cpu", "PyTorch is not installed, so no GPU can be used"
    if torch.cuda.is_available():
        return "gpu", "a GPU was found (--preset changes it)"
    return "cpu", "no GPU was found; smaller slices and fewer steps, made for two cores (--preset changes it)"
