"""The model file: its seal, finding it, and reading it without trusting it."""
