"""Inputs of the four commands, what they make of them undisturbed, and small disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.four_commands import leftovers, result, run, words, write_inputs


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_inputs(tmp_path_factory.mktemp("inputs").resolve())


@pytest.fixture(scope="session")
def undisturbed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What a command leaves that nobody disturbed; each is run once."""
    known: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        if name not in known:
            out = tmp_path_factory.mktemp(name).resolve()
            done = run(place, *words(name, out))
            assert done.code == 0, done
            assert leftovers(out) == []
            known[name] = result(name, out)
        return known[name]

    return of
