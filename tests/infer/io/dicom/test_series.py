"""Several series in one folder: which is meant, whose damage counts, and `mona data series`."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import numpy as np
import pydicom
import pytest
from helpers.dicom_files import write_enhanced, write_series
from pydicom.uid import BasicTextSRStorage

from mona_infer.cli.main import app
from mona_infer.errors import InputError
from mona_infer.io.read import read_volume

AXIAL = np.diag([-0.8, -1.2, 2.5, 1.0])
A, B = "1.2.3.1", "1.2.3.2"


def scan(slices, seed=0, side=16):
    return np.random.default_rng(seed).integers(0, 900, (side, side - 2, slices), np.int16)


@pytest.fixture
def twins(tmp_path):
    """Two series with one number and description, as a repeated acquisition leaves them."""
    for name, uid, slices, seed in (("a", A, 5, 1), ("b", B, 3, 2)):
        tags = {"SeriesInstanceUID": uid, "SeriesNumber": 7, "SeriesDescription": "T2 SA"}
        write_series(tmp_path / name, scan(slices, seed), AXIAL, **tags)
    return tmp_path


def test_series_of_one_name_are_listed_with_uid_slices_and_size(twins):
    for wanted in ("7", "T2 SA"):
        with pytest.raises(InputError) as caught:
            read_volume(twins, series=wanted)
        for uid, slices in ((A, 5), (B, 3)):
            assert f"7 'T2 SA' with {slices} slice(s) of 16x14 pixels (UID {uid})" in str(caught.value)
    np.testing.assert_array_equal(read_volume(twins, series=B).voxels, scan(3, 2))


def test_a_tie_of_such_series_names_their_uids(twins):
    for file in sorted((twins / "a").iterdir())[3:]:
        file.unlink()
    with pytest.raises(InputError, match=rf"several series with the same number of slices .*UID {A}.*UID {B}"):
        read_volume(twins)


DAMAGE = {
    "pixels": lambda data: data[:-100],
    "header": lambda data: data[: data.index(b"\x28\0\x10\0US")],
    "before its series is named": lambda data: data[: data.index(b"\x20\0\x0e\0UI")],
    "nonsense": lambda data: data[:132] + bytes(5000),
    "a length of gigabytes": lambda data: data.replace(b"\x28\0\x10\0US\x02\0", b"\x28\0\x10\0UN\0\0\xf0\xff\xff\xff"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_of_another_series_does_not_block_the_chosen_one(twins, how):
    victim = twins / "b" / "0001.dcm"
    victim.write_bytes(DAMAGE[how](victim.read_bytes()))
    for wanted in (A, None):
        volume = read_volume(twins, series=wanted)
        np.testing.assert_array_equal(volume.voxels, scan(5, 1))
        if how != "pixels":  # whose damage only shows when it is read
            assert f"skipped 1 damaged file(s) of other series, such as {victim}" in volume.notes
    with pytest.raises(InputError, match=str(victim)):
        read_volume(twins, series=B)


def test_a_damaged_file_that_may_be_of_the_chosen_series_blocks_it(twins):
    """In one folder with both series, and without a name for its own."""
    for file in (twins / "b").iterdir():
        file.rename(twins / "a" / f"b{file.name}")
    victim = twins / "a" / "b0001.dcm"
    whole = victim.read_bytes()
    victim.write_bytes(DAMAGE["header"](whole))
    assert read_volume(twins, series=A).shape == (16, 14, 5)
    victim.write_bytes(DAMAGE["before its series is named"](whole))
    with pytest.raises(InputError, match=str(victim)):
        read_volume(twins, series=A)


def test_a_damaged_file_still_counts_for_its_series(twins):
    victim = twins / "a" / "0004.dcm"
    victim.write_bytes(DAMAGE["header"](victim.read_bytes()))
    for file in ("0002.dcm", "0003.dcm"):
        (twins / "a" / file).unlink()
    with pytest.raises(InputError, match="several series with the same number of slices"):
        read_volume(twins)
    (victim.with_name("0000.dcm")).unlink()
    (victim.with_name("0001.dcm")).unlink()
    with pytest.raises(InputError, match=str(victim)):
        read_volume(twins, series=A)


# mona data series


@pytest.fixture
def mixed(twins):
    cine = np.stack([scan(4, t) for t in range(3)], axis=3)
    write_enhanced(twins / "cine.dcm", cine, AXIAL, by_trigger=True, SeriesInstanceUID="1.2.3.3", SeriesNumber=11)
    write_series(twins / "rgb", scan(2), AXIAL, SeriesInstanceUID="1.2.3.4", PhotometricInterpretation="RGB")
    report = pydicom.dcmread(twins / "a" / "0000.dcm")
    for keyword in ("Rows", "Columns", "PixelData"):
        delattr(report, keyword)
    report.file_meta.MediaStorageSOPClassUID = report.SOPClassUID = BasicTextSRStorage
    report.save_as(twins / "report.dcm")
    (twins / "b" / "0000.dcm").write_bytes(b"")
    return twins


def listing(path, capsys):
    app(["data", "series", str(path), "--json"], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_series_are_listed_with_what_the_reader_finds(mixed, capsys, packed, tmp_path_factory):
    path = mixed
    if packed:
        path = tmp_path_factory.mktemp("zip") / "all.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in mixed.rglob("*.dcm"):
                archive.write(file, file.relative_to(mixed))
    report = listing(path, capsys)
    assert [one["uid"] for one in report["series"]] == ["1.2.3.4", A, B, "1.2.3.3"]
    assert "skipped 1 file(s)" in report["notes"][0]
    rgb, *readable = report["series"]
    assert "not grey values" in rgb["problem"]
    assert rgb["slices"] is None
    for one in readable:
        volume = read_volume(path, series=one["uid"], frame=0)
        assert (one["columns"], one["rows"], one["slices"]) == volume.shape
        assert one["spacing"] == pytest.approx(volume.spacing)
        assert (one["frames"], one["modality"], one["problem"]) == (volume.frames, "MR", None)
    cine = readable[-1]
    assert (cine["frames"], cine["frame_interval_ms"], cine["number"]) == (3, 40, "11")


def test_series_are_listed_in_words(mixed, capsys):
    app(["data", "series", str(mixed)], standalone_mode=False)
    told = capsys.readouterr().out
    assert "   7  MR   T2 SA\n      5 slice(s) of 16 x 14, 0.8 x 1.2 x 2.5 mm; 5 file(s)\n      UID 1.2.3.1\n" in told
    assert "4 slice(s) of 16 x 14, 0.8 x 1.2 x 2.5 mm, 3 frames every 40 ms; 1 file(s)" in told
    assert "cannot be read: " in told
    assert told.endswith(f"{mixed}: 4 series\n")


def test_the_list_needs_no_torch(twins):
    program = (
        "import sys\nsys.modules['torch'] = None\nfrom mona_infer.cli.main import app\n"
        "app(['data', 'series', sys.argv[1], '--json', 's.json'], standalone_mode=False)\n"
        "assert not [name for name in sys.modules if name.startswith('torch.')]\n"
    )
    subprocess.run([sys.executable, "-c", program, str(twins)], check=True, cwd=twins, capture_output=True)
    assert len(json.loads((twins / "s.json").read_text())["series"]) == 2


def test_a_folder_without_dicom_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a DICOM image"):
        app(["data", "series", str(tmp_path)], standalone_mode=False)
