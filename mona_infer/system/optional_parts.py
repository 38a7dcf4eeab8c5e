"""Optional parts: which are installed, and the exact command that installs one that is not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mona_infer.errors import MissingPart


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
        requirement, _, marker = (text.strip() for text in line.partition(";"))
        of_extra = re.compile(rf"(\s*\band\s+)?extra == ['\"]{extra}['\"]")
        if of_extra.search(marker):
            # What is for one system only stays so: pip skips it elsewhere.
            where = of_extra.sub("", marker).replace('"', "'").strip()
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
            found[name] = f"{requirement}; {where}" if where else requirement
    return found


def install_command(*needed: str) -> str:
    """The command that installs these requirements into the Python that runs mona.

    It names the packages, not mona's extra, so that it works wherever mona itself came from: a clone or a wheel.
    """
    import shutil

    found = shutil.which("python")
    activated = found is not None and Path(found).parent == Path(sys.executable).parent
    python = "python" if activated else sys.executable or "python"
    return f"{python} -m pip install " + " ".join(f'"{requirement}"' for requirement in needed)


def require(command: str, *modules: str) -> None:
    """Refuse a command before it begins where modules that it needs are not installed."""
    if absent := [module for module in modules if not _importable(module)]:
        raise _missing(f"`mona {command}` needs {', '.join(map(_package, absent))}", absent, "train")


def missing_part(error: ModuleNotFoundError) -> MissingPart | None:
    """What to say of a module that failed to import; None where it is of no optional part, and so mona's own fault."""
    module = (error.name or "").partition(".")[0]
    for extra in ("train", "cpu", "openvino", "gpu", "dicom", "dicom-seg"):
        if _package(module) in requirements(extra):
            return _missing(f"this needs {_package(module)}", [module], extra)
    return None


def _missing(need: str, modules: list[str], extra: str) -> MissingPart:
    """Training is one part, installed as a whole: who lacks torch lacks what `mona export` needs next, too."""
    known = requirements(extra)
    wanted = {_package(module) for module in modules}
    if "torch" in wanted:
        wanted |= {package for package in known if not _importable(package.replace("-", "_"))}
    command = install_command(*(requirement for package, requirement in known.items() if package in wanted))
    return MissingPart(f"{need}, which {'is' if len(modules) == 1 else 'are'} not installed: {command}")


def _package(module: str) -> str:
    return module.replace("_", "-")


def _importable(module: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: sys.modules holds a None for it
        return False
