"""The machine: available memory, progress bars, and which optional packages are installed."""
