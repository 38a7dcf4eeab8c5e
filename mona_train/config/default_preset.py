"""The default preset for this machine, which `train` uses and `data prepare` prepares for."""

from __future__ import annotations


def default_preset() -> tuple[str, str]:
    """Its name, and the reason."""
    try:
        import torch
    except ModuleNotFoundError:  # data can be prepared without it
        return "cpu", "PyTorch is not installed, so no GPU can be used"
    if torch.cuda.is_available():
        return "gpu", "a GPU was found (choose another with --preset)"
    return "cpu", "no GPU was found: smaller slices and fewer steps, for two cores (choose another with --preset)"
