"""Fuzzing: small targets, one for each reader of files from elsewhere, and what runs them (`make fuzz`).

`test_targets.py` replays seeds and earlier findings through the same targets in every `make test`, without atheris.
"""
