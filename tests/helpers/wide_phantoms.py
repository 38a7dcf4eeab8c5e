"""The built-in phantoms in a larger field of view, the heart near one of its corners: a first look has to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from mona_infer.volume import Volume
from mona_train.data.adapters import phantom
from mona_train.data.case import Case

AIR = 90  # pixels on one side of each in-plane axis, as much as two thirds of the scan


@contextmanager
def few_phantoms(train: int = 8, val: int = 1, test: int = 1) -> Iterator[None]:
    """Fewer patients: drawing all 36 takes a while."""
    with mock.patch.dict(phantom.PATIENTS, {"train": train, "val": val, "test": test}):
        yield


def wide_cases(folder: Path) -> list[Case]:
    def wide(read: Callable[[], Volume], patient: int) -> Callable[[], Volume]:
        before = AIR * (patient % 2), AIR * (patient // 2 % 2)

        def volume() -> Volume:
            found = read()
            return Volume(np.pad(found.voxels, [*((n, AIR - n) for n in before), (0, 0)]), found.affine)

        return volume

    return [
        replace(case, image=wide(case.image, int(case.patient[7:])), label=wide(case.label, int(case.patient[7:])))
        for case in phantom.cases(folder)
        if case.label is not None
    ]


WIDE = replace(phantom.ADAPTER, cases=wide_cases)
