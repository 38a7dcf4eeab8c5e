"""Optional packages: which are installed, and the exact command that installs a missing one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mona_infer.errors import MissingPart

CORE = ("train", "cpu", "openvino", "gpu")  # extras of which `mona doctor` knows more than what they are for
# What each of the others is for; a line here is all that a new extra needs beside pyproject.toml.
EXTRAS = {
    "dicom": "read compressed DICOM",
    "dicom-seg": "write masks as DICOM Segmentations",
    "serve": "run mona serve",
    "bench": "draw the plots of mona bench report",
    "slurm": "run the rows of mona bench on a cluster",
}


def version(package: str) -> str | None:
    import importlib.metadata  # slow, and only needed if something is missing

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements(extra: str) -> dict[str, str]:
    """Package name -> requirement, for one extra of the installed mona."""
    import importlib.metadata

    found = {}
    for line in importlib.metadata.requires("mona") or []:
        requirement, _, marker = (text.strip() for text in line.partition(";"))
        of_extra = re.compile(rf"(\s*\band\s+)?extra == ['\"]{extra}['\"]")
        if of_extra.search(marker):
            # Keep platform markers: pip skips the package elsewhere.
            where = of_extra.sub("", marker).replace('"', "'").strip()
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
            found[name] = f"{requirement}; {where}" if where else requirement
    return found


def install_command(*needed: str) -> str:
    """The command that installs these requirements into the Python that runs mona.

    It names the packages, not mona's extra, so that it works for a clone as well as for a wheel.
    """
    return f"{this_python()} -m pip install " + " ".join(f'"{requirement}"' for requirement in needed)


def this_python() -> str:
    """What a user types to run the Python that runs mona."""
    import shutil

    found = shutil.which("python")
    activated = found is not None and Path(found).parent == Path(sys.executable).parent
    return "python" if activated else sys.executable or "python"


def require(command: str, *modules: str, extra: str = "train") -> None:
    """Refuse a command before it starts if modules that it needs are not installed."""
    if absent := [module for module in modules if not _importable(module)]:
        raise _missing(f"`mona {command}` needs {', '.join(map(_package, absent))}", absent, extra)


def missing_part(error: ModuleNotFoundError) -> MissingPart | None:
    """The error for a module that failed to import; None if it is not an optional package, which is a bug in mona."""
    module = (error.name or "").partition(".")[0]
    for extra in (*CORE, *EXTRAS):
        if _package(module) in requirements(extra):
            return _missing(f"this needs {_package(module)}", [module], extra)
    return None


def _missing(need: str, modules: list[str], extra: str) -> MissingPart:
    """Training packages are installed together: if torch is missing, `mona export` would need the others next."""
    known = requirements(extra)
    wanted = {_package(module) for module in modules}
    if "torch" in wanted:
        wanted |= {package for package in known if not _importable(package.replace("-", "_"))}
    command = install_command(*(requirement for package, requirement in known.items() if package in wanted))
    return MissingPart(f"{need}, which {'is' if len(modules) == 1 else 'are'} not installed; run: {command}")


def _package(module: str) -> str:
    return module.replace("_", "-")


def _importable(module: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: sys.modules holds a None for it
        return False
