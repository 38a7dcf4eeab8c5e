"""One scale for a data set: the ruler of its adapter, never larger than the scans, and the reason in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mona_infer.task import CARDIAC
from mona_infer.volume import Volume
from mona_train.data.case import Adapter, Case
from mona_train.data.scale import SAMPLED, at_one_scale

# Rows, columns and their spacing in mm; the medians are a long side of 200 pixels, and of 250 mm.
SCANS = [((100, 80), (1.0, 1.0)), ((200, 150), (1.25, 1.25)), ((60, 240), (1.0, 1.5))]
READ: list[str] = []  # names, in the order in which they were read


def adapter_with(ruler: Any, orientation: str = "world") -> Adapter:
    nothing: Any = None
    facts = {"source": "nowhere", "licence": "none", "layout": ""}
    return Adapter("mine", "Mine", nothing, lambda _: CARDIAC, nothing, **facts, ruler=ruler, orientation=orientation)


def case_of(name: str, size: tuple[int, int], spacing: tuple[float, float], order: Sequence[int]) -> Case:
    """`order` is that in which columns, rows and slices are stored."""

    def image() -> Volume:
        READ.append(name)
        affine = np.zeros((4, 4))
        affine[(0, 1, 2), np.argsort(order)] = -spacing[1], -spacing[0], 10
        affine[:, 3] = 5, 6, 7, 1
        return Volume(np.zeros((size[1], size[0], 4), np.int16).transpose(order), affine)

    return Case(name, name, (), image, None)


def scans(order: Sequence[int] = (0, 1, 2)) -> list[Case]:
    return [case_of(f"scan{n}", *scan, order) for n, scan in enumerate(SCANS)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_millimetres(order: Sequence[int]) -> None:
    """250 mm in 64 pixels are 3.90625 mm a pixel; three digits are enough, and all that is written down."""
    task, said = at_one_scale(adapter_with("mm"), CARDIAC, scans(order), 64)
    assert (task.spacing, task.long_side, task.squeezed) == (3.91, None, False)
    assert task.frame((200, 150), (1.25, 1.25)) == (64, 48)
    assert task.frame((60, 240), (1.0, 1.5)) == (15, 92)  # 60 and 360 mm
    assert said == (
        "slices get a spacing of 3.91 mm, their shape is kept "
        "(the long side of a typical one is 250 mm in 200 pixels, and becomes 64)"
    )


def test_pixels() -> None:
    task, said = at_one_scale(adapter_with("pixels"), CARDIAC, scans(), 64)
    assert (task.spacing, task.long_side, task.squeezed) == (None, 64, False)
    assert task.frame((200, 150), (1.25, 1.25)) == (64, 48)
    assert task.frame((60, 240), (1.0, 1.5)) == (16, 64)  # whatever their spacing
    assert said == (
        "the long side of every slice becomes 64 pixels, its shape is kept "
        "(mine does not always have a spacing; the typical long side is 200 pixels)"
    )


@pytest.mark.parametrize("pixels", [200, 201, 4096])
def test_slices_are_never_enlarged(pixels: int) -> None:
    """A few small scans are: 200 pixels are what a typical one has."""
    assert at_one_scale(adapter_with("pixels"), CARDIAC, scans(), pixels)[0].long_side == 200
    task, said = at_one_scale(adapter_with("mm"), CARDIAC, scans(), pixels)
    assert task.spacing == 1.25 and said.endswith("in 200 pixels, and becomes 200)")


def test_the_orientation_is_the_adapters_and_logits_are_resized_not_labels() -> None:
    for orientation in ("world", "portrait"):
        task, _ = at_one_scale(adapter_with("mm", orientation), CARDIAC, scans(), 64)
        assert (task.orientation, task.mask_order) == (orientation, 1)


def test_many_scans_are_sampled_evenly() -> None:
    many = [case_of(f"scan{n}", (50, 40) if n < 20 else (400, 300), (1, 1), (0, 1, 2)) for n in range(100)]
    READ.clear()
    task, _ = at_one_scale(adapter_with("pixels"), CARDIAC, many, 1000)
    assert len(READ) <= SAMPLED and READ[0] == "scan0" and int(READ[-1].removeprefix("scan")) >= 90
    assert task.long_side == 400
    READ.clear()
    at_one_scale(adapter_with("pixels"), CARDIAC, many[:SAMPLED], 1000)
    assert len(READ) == SAMPLED


def test_acdc_has_its_own_ruler_and_orientation() -> None:
    """Its h5 copy has no spacing, and some patients are stored a quarter turn away."""
    from mona_train.data.adapters import adapters

    known = {name: (adapter.ruler, adapter.orientation) for name, adapter in adapters().items()}
    assert known.pop("acdc") == ("pixels", "portrait")
    assert {*known.values()} == {("mm", "world")}
    assert adapters()["acdc"].task(Path()).orientation == "stored"  # also where slices are squeezed
