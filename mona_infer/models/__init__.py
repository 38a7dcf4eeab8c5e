"""The model file: its seal, how it is found, how it is read without trusting it."""
