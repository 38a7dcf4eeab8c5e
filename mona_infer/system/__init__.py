"""The machine: how much memory may be used, progress bars, which optional packages are installed."""
