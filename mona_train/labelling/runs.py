"""The run whose network is asked: it must have learned from the data whose scans are to be labelled."""

from __future__ import annotations

from pathlib import Path

from mona_infer.errors import InputError
from mona_train.data.case import Adapter, Case
from mona_train.data.resolved import Resolved, read_resolved


def newest_run_of(adapter: Adapter, folder: Path, runs: Path = Path("runs")) -> Path:
    """The finished run that learned from this folder and ended last."""
    ended = sorted(runs.glob("[!.]*/results.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in ended:
        try:
            resolved = read_resolved(path.parent)
        except InputError:  # a damaged run is not the one, unless it is asked for by name
            continue
        if resolved is not None and _same_place(resolved, adapter, folder):
            return path.parent
    name = folder if adapter.layout else adapter.name
    raise InputError(
        f"no finished run in {runs} learned from {name}; train one with `mona train --dataset {name} ...`, or name one "
        "with --run RUN"
    )


def check_run(run: Path, resolved: Resolved, adapter: Adapter, folder: Path, cases: list[Case]) -> None:
    """Data may have moved since: then the patients that the run learned from are still among it."""
    if _same_place(resolved, adapter, folder):
        return
    patients = {case.patient for case in cases}
    if resolved.adapter != adapter.name or not patients.issuperset(resolved.split.labelled_patients):
        where = resolved.data if adapter.layout or resolved.adapter != adapter.name else resolved.adapter
        raise InputError(
            f"{run} learned from other data ({resolved.adapter} in {where}), not from {folder}; name a run of this "
            "data with --run RUN, or train one"
        )


def _same_place(resolved: Resolved, adapter: Adapter, folder: Path) -> bool:
    return resolved.adapter == adapter.name and (not adapter.layout or resolved.data == folder.resolve())
