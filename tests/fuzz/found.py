"""Inputs on which a reader once broke its promise: (target, input), with what happened."""

FOUND: list[tuple[str, bytes]] = []
