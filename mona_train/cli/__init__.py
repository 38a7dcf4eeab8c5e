"""The commands that need PyTorch: train, export, data, demo."""
