"""Labelled, unlabelled, validation and test patients: from published lists or drawn with a seed, always the same.

The published lists (method 1.1-1.3) are package data in `splits/`, for the ratios 0.01, 0.05 and 0.10.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mona_infer.errors import InputError
from mona_train.data.cache import Cache, CachedCase

LISTS = Path(__file__).parent / "splits"
PUBLISHED = {"acdc": "ACDC", "lits": "LiTS", "mmwhs": "MMWHS"}
RATIOS = {0.01: "1", 0.05: "5", 0.1: "10"}
VALIDATION_SHARE, FEWEST_TO_VALIDATE = 0.15, 5
# Training slices are chosen without looking at labels (decision 10): CT slices that show enough body.
LEAST_CONTENT = {"lits": 0.10}


@dataclass(frozen=True)
class Split:
    """Rows of the cache to train on, and the names of the cases to validate and test on."""

    labelled: tuple[int, ...]
    unlabelled: tuple[int, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    labelled_patients: tuple[str, ...]
    unlabelled_patients: tuple[str, ...]
    origin: str  # "published" or how it was drawn
    warnings: tuple[str, ...] = ()  # shown before training starts, which may take hours

    def describe(self) -> str:
        """Printed before every run."""
        people = ", ".join(self.labelled_patients[:12]) + (", ..." if len(self.labelled_patients) > 12 else "")
        line = (
            f"labelled: {len(self.labelled)} slices of {len(self.labelled_patients)} patient(s) ({people}); "
            f"unlabelled: {len(self.unlabelled)} slices of {len(self.unlabelled_patients)} patient(s); "
            f"validation: {len(self.val)} volumes; test: {len(self.test)} volumes; {self.origin}"
        )
        return "\n".join([line, *(f"warning: {warning}" for warning in self.warnings)])


def split(cache: Cache, ratio: float | None = None, seed: int | None = None) -> Split:
    """The split of a data set at a label ratio (a fraction of the training patients; None: use every label).

    Published data sets at published ratios use the published patients, unless a seed is given.
    """
    if ratio is not None and not 0 < ratio <= 1:
        raise InputError(f"the label ratio must be above 0 and at most 1 (0.05 is 5 %), found {ratio}")
    train, val, test = _parts(cache, seed or 0)
    named = {case.name: case for case in train}
    if cache.dataset in PUBLISHED and seed is None and ratio in RATIOS:
        listed = _read_list(f"{PUBLISHED[cache.dataset]}_train_{RATIOS[ratio]}_")
        rows = _listed_rows(listed, named, cache)
        origin = "the published lists"
    else:
        chosen = _draw(train, 1.0 if ratio is None else ratio, seed or 0)
        rows = [row for case in train if case.patient in chosen and case.first_label is not None for row in case.rows]
        origin = "all labels" if ratio is None else f"drawn by patient with seed {seed or 0}"
    least = LEAST_CONTENT.get(cache.dataset, 0.0)
    kept = [row for case in train for row, c in zip(case.rows, case.content, strict=True) if c >= least]
    labelled = sorted(set(rows) & set(kept))
    unlabelled = sorted(set(kept) - set(rows))
    if not labelled:
        share = "" if ratio is None else f" when {100 * ratio:g} % of the patients are labelled"
        raise InputError(f"{cache.folder}: no training slice has a label{share}; check the labels of the data set")
    owner = {row: case.patient for case in train for row in case.rows}
    return Split(
        labelled=tuple(labelled),
        unlabelled=tuple(unlabelled),
        val=tuple(case.name for case in val),
        test=tuple(case.name for case in test),
        labelled_patients=tuple(sorted({owner[row] for row in labelled})),
        unlabelled_patients=tuple(sorted({owner[row] for row in unlabelled})),
        origin=origin,
        warnings=(*_differs_from_published(cache), *_leaks(train, val, test), *_absent_classes(cache, train, labelled)),
    )


def published_validation(dataset: str) -> list[str]:
    """The names of the cases that the published lists validate on."""
    return _read_list(f"{PUBLISHED[dataset]}_val")


def _differs_from_published(cache: Cache) -> Iterator[str]:
    """Results on half of a published data set must not be mistaken for results on all of it."""
    if cache.dataset not in PUBLISHED:
        return
    here, listed = {case.name for case in cache.cases}, set[str]()
    for part in ("train_all", "val", "test"):
        names = _read_list(f"{PUBLISHED[cache.dataset]}_{part}")
        listed |= set(names)
        if missing := [name for name in names if name not in here]:
            kind = part.removesuffix("_all")
            yield f"{len(missing)} of {len(names)} volumes of the published {kind} list are missing: {_few(missing)}"
    if others := sorted(here - listed):
        yield f"{len(others)} volumes are not in any published list and are not used: {_few(others)}"


def _leaks(train: list[CachedCase], val: list[CachedCase], test: list[CachedCase]) -> Iterator[str]:
    """If the data set defines its own test part, the same image may be in more than one part."""
    for part, cases, others in (("validation", val, train), ("test", test, [*train, *val])):
        known = {case.image_hash: case.name for case in others}
        if same := [f"{case.name} = {known[case.image_hash]}" for case in cases if case.image_hash in known]:
            elsewhere = "training volumes" if part == "validation" else "training or validation volumes"
            yield f"{len(same)} {part} volumes are also {elsewhere}, so their scores are too optimistic: {_few(same)}"


def _absent_classes(cache: Cache, train: list[CachedCase], labelled: list[int]) -> Iterator[str]:
    """A class that is in no volume whose labels are used cannot be learned."""
    rows = set(labelled)
    used = [case.voxels for case in train if case.voxels and rows & set(case.rows)]
    absent = [c.name for n, c in enumerate(cache.task.classes) if not any(voxels[n] for voxels in used)]
    if absent:
        yield f"no labelled training volume contains {', '.join(absent)}, so it cannot be learned"


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _parts(cache: Cache, seed: int) -> tuple[list[CachedCase], list[CachedCase], list[CachedCase]]:
    """Training, validation and test cases: as published, as the data set defines them, or drawn by patient."""
    if cache.dataset in PUBLISHED:
        prefix = PUBLISHED[cache.dataset]
        names = {part: set(_read_list(f"{prefix}_{file}")) for part, file in (("val", "val"), ("test", "test"))}
        train_names = set(_read_list(f"{prefix}_train_all"))
        train = [case for case in cache.cases if case.name in train_names]
        val = [case for case in cache.cases if case.name in names["val"]]
        return train, val, [case for case in cache.cases if case.name in names["test"]]
    test = [case for case in cache.cases if case.part == "test"]
    val = [case for case in cache.cases if case.part == "val"]
    train = [case for case in cache.cases if case.part not in ("test", "val")]
    labelled = {case.patient for case in train if case.first_label is not None}
    if val or len(labelled) < FEWEST_TO_VALIDATE:
        return train, val, test
    groups = [group for group in _groups(train) if group & labelled]
    order = np.random.default_rng([seed, 1]).permutation(len(groups))
    wanted, held = max(1, round(VALIDATION_SHARE * len(labelled))), set[str]()
    for n in order:
        if len(held & labelled) >= wanted:
            break
        held |= groups[n]
    return (
        [case for case in train if case.patient not in held],
        [case for case in train if case.patient in held and case.first_label is not None],
        test,
    )


def _draw(train: list[CachedCase], ratio: float, seed: int) -> set[str]:
    """Patients to label: about `ratio` of the training patients, at least one; duplicates stay together."""
    labelled = {case.patient for case in train if case.first_label is not None}
    wanted = max(1, round(ratio * len({case.patient for case in train})))
    groups = [group & labelled for group in _groups(train) if group & labelled]
    chosen: set[str] = set()
    for n in np.random.default_rng([seed, 2]).permutation(len(groups)):
        if len(chosen) >= wanted:
            break
        chosen |= groups[n]
    return chosen


def _groups(cases: list[CachedCase]) -> list[set[str]]:
    """Groups of patients in a fixed order; patients who share an identical image form one group."""
    by_image: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        by_image[case.image_hash].add(case.patient)
    groups: list[set[str]] = []
    for people in by_image.values():
        joined = [group for group in groups if group & people]
        groups = [group for group in groups if not group & people] + [people.union(*joined)]
    return sorted(groups, key=min)


def _listed_rows(listed: list[str], named: dict[str, CachedCase], cache: Cache) -> list[int]:
    """Rows of listed cases (`patient099_frame01`) or of listed slices of one (`ct_train_1018_slice_42`, from 1)."""
    rows: list[int] = []
    for name in listed:
        case_name, _, number = name.partition("_slice_")
        case = named.get(case_name)
        if case is None or case.first_label is None:
            raise InputError(f"{cache.folder} has no label for {case_name}, which is labelled in the published split")
        if not number:
            rows += case.rows
            continue
        at = int(number) - 1
        if not 0 <= at < case.slices:
            raise InputError(
                f"{cache.folder}: {case_name} has only {case.slices} slices, but {name} is in the published split"
            )
        rows.append(case.first + (case.slices - 1 - at if case.reversed else at))
    return rows


def _read_list(name: str) -> list[str]:
    """A published list, without file extensions; LiTS and MMWHS have no validation list."""
    path = LISTS / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").split() if path.exists() else []
    return [line.removesuffix(".h5") for line in lines]
