"""The training loop: sessions, steps, optimisers, EMA, several processes, validation, profile."""
