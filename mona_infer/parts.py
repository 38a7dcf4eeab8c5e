"""Optional parts: which are installed, and the exact command that installs one that is not."""

from __future__ import annotations

import re


def version(package: str) -> str | None:
    import importlib.metadata  # not at the top: a command that lacks nothing has no use for it, and it takes its time

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements(extra: str) -> dict[str, str]:
    """Package name -> requirement, for one extra of pyproject.toml as it was installed."""
    import importlib.metadata

    found = {}
    for line in importlib.metadata.requires("mona") or []:
        requirement, _, marker = line.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", marker):
            found[re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0].lower()] = requirement.strip()
    return found


def install_command(*needed: str) -> str:
    """The command that installs these requirements into the Python that runs mona.

    It names the packages, not mona's extra, so that it works wherever mona itself came from.
    """
    return "python -m pip install " + " ".join(f'"{requirement}"' for requirement in needed)
