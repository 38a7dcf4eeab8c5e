"""Memory and damaged bytes: what reading costs, and that damage ends in one sentence or a volume."""

from __future__ import annotations

import logging
import tracemalloc
import warnings

import numpy as np
import pytest
from helpers.dicom_files import write_enhanced, write_series
from helpers.dicom_reading import AXIAL, read, refused, scan, zipped
from pydicom.uid import RLELossless

from mona_infer.errors import InputError, MissingPart

pytestmark = pytest.mark.usefixtures("silence")


def test_the_budget_is_checked_before_allocating_or_decoding(tmp_path, monkeypatch):
    voxels = scan((64, 64, 8))
    write_series(tmp_path, voxels, AXIAL, RescaleSlope=2)
    np.testing.assert_array_equal(read(tmp_path, budget=voxels.nbytes).voxels, voxels)
    monkeypatch.setattr("mona_infer.io.dicom.pixels.iter_pixels", None)
    monkeypatch.setattr(np, "empty", None)
    refused(tmp_path, "64x64x8 voxels", "of memory", budget=voxels.nbytes - 1)


def test_peak_memory_is_the_volume_and_a_slice(tmp_path):
    voxels = scan((256, 256, 40))
    write_series(tmp_path / "classic", voxels, AXIAL)
    write_enhanced(tmp_path / "enhanced", voxels, AXIAL)
    for path in (tmp_path / "classic", tmp_path / "enhanced"):
        read(path)  # pydicom's own tables are filled by now
        tracemalloc.start()
        read(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.3 * voxels.nbytes  # the rest: 40 headers and a slice or three


def test_logging_is_left_as_it_was(tmp_path):
    logger = logging.getLogger("pydicom")
    before = logger.level, list(logger.handlers), list(warnings.filters)
    write_series(tmp_path, scan(), AXIAL)
    read(tmp_path)
    assert (logger.level, list(logger.handlers), list(warnings.filters)) == before


@pytest.mark.parametrize("kind", ["classic", "enhanced", "rle", "zip"])
def test_damaged_bytes_end_as_input_error_or_a_volume(tmp_path, kind):
    """Anything else that read_dicom raises fails this test as it is."""
    voxels = scan((12, 10, 3))
    if kind == "enhanced":
        victims = [write_enhanced(tmp_path / "in" / "e.dcm", voxels, AXIAL, undefined_lengths=True)]
    else:
        victims = write_series(tmp_path / "in", voxels, AXIAL, compress=RLELossless if kind == "rle" else None)
    path = tmp_path / "in"
    if kind == "zip":
        path = zipped(tmp_path / "in.zip", tmp_path / "in")
        victims = [path]
    whole = victims[0].read_bytes()
    ends = {"volume": 0, "refused": 0}
    for seed in range(10 if kind == "rle" else 40):  # each starts a process for compressed pixels
        rng = np.random.default_rng(seed)
        data = np.frombuffer(whole, np.uint8).copy()
        at = rng.integers(132 if kind != "zip" else 0, len(data), 1 + seed % 12)
        data[at] = rng.integers(0, 256, at.size)
        victims[0].write_bytes(data[: rng.integers(140, len(data))] if seed % 5 == 0 else data)
        try:
            volume = read(path)
        except (InputError, MissingPart) as error:
            assert "\n" not in str(error)
            ends["refused"] += 1
        else:
            assert volume.voxels.ndim == 3
            ends["volume"] += 1
    assert min(ends.values()) > 0  # the damage is neither all fatal nor all harmless
