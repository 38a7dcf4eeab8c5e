"""When the frames of a DICOM cine were taken: in the mask's header, by nibabel and SimpleITK, and in the stats."""

from __future__ import annotations

import json

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.dicom_files import write_enhanced, write_series
from pydicom.uid import generate_uid

from mona_infer.cli.main import app
from mona_infer.io.read import read_frames, read_volume

AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])
FRAMES = 4


def cine():
    rng = np.random.default_rng(0)
    return rng.integers(0, 900, (20, 18, 3, FRAMES), np.int16)


def write_cine(folder, **tags):
    """`tags` are asked for (k, t)."""
    uid = generate_uid()
    for t in range(FRAMES):
        own = {name: (lambda k, f=value, t=t: f(k, t)) for name, value in tags.items()}
        names = [f"{k}-{t}.dcm" for k in range(3)]
        write_series(folder, cine()[..., t], AFFINE, names=names, SeriesInstanceUID=uid, **own)
    return folder


def times_of(path):
    frames = list(read_frames(path))
    assert all(frame.times == frames[0].times for frame in frames)
    return frames[0].times


CLOCK = ("115958.5", "115959.500", "120000.5", "120001.75")
EVEN = (0.0, 0.04, 0.08, 0.12)
CASES = {
    "trigger time": ({"TriggerTime": lambda k, t: 12.5 + 40 * t}, EVEN),
    "trigger time that starts later in each slice": ({"TriggerTime": lambda k, t: 40 * t + 3 * k}, EVEN),
    "before the nominal interval": ({"TriggerTime": lambda k, t: 40 * t, "NominalInterval": lambda k, t: 999}, EVEN),
    "temporal resolution": (
        {"TemporalPositionIdentifier": lambda k, t: t + 1, "TemporalResolution": lambda k, t: 40},
        EVEN,
    ),
    "frame time": ({"FrameTime": lambda k, t: 40, "InstanceNumber": lambda k, t: 10 * k + t}, EVEN),
    "a heartbeat and its images": (
        {
            "InstanceNumber": lambda k, t: 10 * k + t,
            "NominalInterval": lambda k, t: 1000,
            "CardiacNumberOfImages": lambda k, t: 25,
        },
        EVEN,
    ),
    "the clock": ({"AcquisitionTime": lambda k, t: CLOCK[t]}, (0.0, 1.0, 2.0, 3.25)),
    "nothing": ({"InstanceNumber": lambda k, t: 10 * k + t}, ()),
    "a heartbeat without a count": (
        {"InstanceNumber": lambda k, t: 10 * k + t, "NominalInterval": lambda k, t: 1000},
        (),
    ),
    "slices that disagree": (
        {"InstanceNumber": lambda k, t: 10 * k + t, "FrameTime": lambda k, t: 40 + k},
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_times_of_a_classic_cine(tmp_path, name):
    tags, expected = CASES[name]
    assert times_of(write_cine(tmp_path, **tags)) == pytest.approx(expected)


def test_times_of_an_enhanced_cine(tmp_path):
    path = write_enhanced(tmp_path / "e.dcm", cine(), AFFINE, by_trigger=True)
    assert times_of(path) == pytest.approx(EVEN)
    assert read_volume(path, frame=2).times == pytest.approx(EVEN)
    assert times_of(write_enhanced(tmp_path / "none.dcm", cine(), AFFINE)) == ()


def mona(*args):
    app(["segment", *map(str, args), "--model", "model.onnx", "--frame", "all"], standalone_mode=False)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    return tmp_path


def test_the_mask_and_the_stats_carry_the_times(here):
    write_cine(here / "cine", TriggerTime=lambda k, t: 12.5 + 41.25 * t)
    mona("cine", "--out", "m.nii.gz", "--stats", "s.json", "--probabilities", "maps")
    for name in ("m.nii.gz", "maps/cine/LV.nii.gz"):
        header = nib.load(name).header
        assert header.get_zooms() == pytest.approx((1.5, 1.5, 8.0, 0.04125))
        assert header.get_xyzt_units() == ("mm", "sec")
        np.testing.assert_allclose(nib.load(name).affine, AFFINE, atol=1e-6)
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    assert case["frame_times_ms"] == pytest.approx([0, 41.25, 82.5, 123.75])
    assert case["frame_interval_ms"] == pytest.approx(41.25)
    assert not [words for words in case["warnings"] if "evenly" in words]


def test_the_mask_by_simpleitk(here):
    sitk = pytest.importorskip("SimpleITK")
    write_cine(here / "cine", TriggerTime=lambda k, t: 40 * t)
    mona("cine", "--out", "m.nii.gz")
    assert sitk.ReadImage("m.nii.gz").GetSpacing() == pytest.approx((1.5, 1.5, 8.0, 0.04))


def test_uneven_times_are_told_and_kept_in_the_stats(here):
    at = (0, 40, 80, 200)
    write_cine(here / "cine", TriggerTime=lambda k, t: at[t])
    mona("cine", "--out", "m.nii", "--stats", "s.json")
    assert nib.load("m.nii").header["pixdim"][4] == pytest.approx(0.2 / 3)
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    assert case["frame_times_ms"] == pytest.approx(at)
    assert [words for words in case["warnings"] if "not evenly spaced in time (40 to 120 ms apart)" in words]


def test_unknown_times_are_null_and_the_header_claims_none(here):
    write_cine(here / "cine", InstanceNumber=lambda k, t: 10 * k + t)
    mona("cine", "--out", "m.nii", "--stats", "s.json")
    assert nib.load("m.nii").header.get_xyzt_units() == ("mm", "unknown")
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    assert (case["frame_times_ms"], case["frame_interval_ms"]) == (None, None)
