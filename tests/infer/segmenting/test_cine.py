"""`--frame all`: a 4-D mask, frame by frame, and the heart's beat in numbers."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.dicom_files import write_enhanced, write_series
from pydicom.uid import generate_uid

from mona_infer.cli.main import app
from mona_infer.errors import CheckFailed, InputError
from mona_infer.io.read import read_frames
from mona_infer.segmenting.cine import heartbeat, left_ventricle
from mona_infer.segmenting.report import ClassReport, FrameReport

AFFINE = np.diag([-1.5, -1.5, 8.0, 1.0])
RADII = (9, 12, 13, 8, 6, 7)


def beating(shape=(40, 36, 5)):
    """A bright ball in a dark box: the class of the brightest, LV, and nothing else but its soft edge."""
    i, j, k = np.ogrid[tuple(slice(0, n) for n in shape)]
    away = np.sqrt((i - shape[0] / 2) ** 2 + (j - shape[1] / 2) ** 2 + (4 * (k - shape[2] // 2)) ** 2)
    return np.stack([np.clip(1000 * (r + 1 - away), 0, 1000) for r in RADII], axis=3).astype(np.int16)


CINE = beating()


def mona(*args):
    return app(["segment", *map(str, args), "--model", "model.onnx"], standalone_mode=False)


def voxels(path):
    return np.asarray(nib.load(path).dataobj)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models.write(tmp_path / "model.onnx")
    for suffix in (".nii", ".nii.gz"):
        image = nib.Nifti1Image(CINE, AFFINE)
        image.header["pixdim"][4] = 0.04
        nib.save(image, f"cine{suffix}")
    return tmp_path


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_every_frame_gets_the_mask_it_gets_alone(here, suffix):
    mona(f"cine{suffix}", "--out", f"all{suffix}", "--frame", "all")
    mask = nib.load(f"all{suffix}")
    assert mask.shape == CINE.shape
    assert mask.header["pixdim"][4] == pytest.approx(0.04)
    np.testing.assert_array_equal(mask.affine, AFFINE)
    for n in range(len(RADII)):
        mona(f"cine{suffix}", "--out", f"{n}.nii", "--frame", n)
        np.testing.assert_array_equal(np.asarray(mask.dataobj)[..., n], voxels(f"{n}.nii"))


def test_a_frame_without_an_organ_is_named(here, capsys):
    models.write(here / "model.onnx", replace(models.TASK, long_side=64, window=(32, 32), first_look=True))
    beat = CINE[..., :3].copy()
    beat[..., 1] = 0
    nib.save(nib.Nifti1Image(beat, AFFINE), "gap.nii.gz")
    mona("gap.nii.gz", "--out", "all.nii.gz", "--frame", "all")
    told = capsys.readouterr().err
    assert "warning: gap: frame 1: the first look found no organ" in told
    assert told.count("first look") == 1


def test_the_beat_is_in_the_stats(here, capsys):
    mona("cine.nii.gz", "--out", "m.nii.gz", "--frame", "all", "--stats", "s.json", "--preview", "p.png")
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    mask = voxels("m.nii.gz")
    volumes = [(mask[..., n] == 3).sum() * 18 / 1000 for n in range(len(RADII))]
    assert [frame["classes"]["LV"]["ml"] for frame in case["frames"]] == pytest.approx(volumes, abs=1e-3)
    cine = case["cine"]
    assert (cine["class"], cine["ED"]["frame"], cine["ES"]["frame"]) == ("LV", 2, 4)
    assert cine["ED"]["ml"] == pytest.approx(volumes[2], abs=1e-3)
    assert cine["ejection_fraction"] == pytest.approx(1 - volumes[4] / volumes[2], abs=1e-3)
    told = capsys.readouterr().out
    assert f"6 frames, LV ED {volumes[2]:.1f} mL (frame 2), ES {volumes[4]:.1f} mL (frame 4), ejection fraction" in told


def test_a_cine_of_dicom_is_that_of_nifti(here):
    mona("cine.nii", "--out", "nifti.nii", "--frame", "all")
    wanted = nib.as_closest_canonical(nib.load("nifti.nii"))
    write_enhanced(here / "one" / "enhanced.dcm", CINE, AFFINE)
    uid = generate_uid()
    for t in range(len(RADII)):
        names = [f"{k}-{t}.dcm" for k in range(CINE.shape[2])]
        write_series(here / "many", CINE[..., t], AFFINE, names=names, TriggerTime=40.0 * t, SeriesInstanceUID=uid)
    for folder in ("one", "many"):
        mona(folder, "--out", f"{folder}.nii", "--frame", "all")
        found = nib.as_closest_canonical(nib.load(f"{folder}.nii"))
        np.testing.assert_allclose(found.affine, wanted.affine, atol=1e-3)
        np.testing.assert_array_equal(np.asarray(found.dataobj), np.asarray(wanted.dataobj))


def test_a_scan_of_one_frame_stays_three_dimensional(here):
    nib.save(nib.Nifti1Image(models.scan(), AFFINE), "still.nii.gz")
    mona("still.nii.gz", "--out", "m.nii.gz", "--frame", "all", "--stats", "s.json")
    assert voxels("m.nii.gz").ndim == 3
    assert "classes" in json.loads((here / "s.json").read_text())["cases"][0]


def test_probabilities_and_scores_of_every_frame(here):
    mona("cine.nii", "--out", "ref.nii.gz", "--frame", "all")
    options = ["--reference", "ref.nii.gz", "--probabilities", "maps", "--stats", "s.json"]
    mona("cine.nii", "--out", "m.nii.gz", "--frame", "all", *options)
    (case,) = json.loads((here / "s.json").read_text())["cases"]
    assert [frame["scores"]["LV"]["dsc"] for frame in case["frames"]] == [1] * len(RADII)
    lv = nib.load("maps/cine/LV.nii.gz").get_fdata()
    assert lv.shape == CINE.shape
    mask = voxels("m.nii.gz")
    assert lv[mask == 0].mean() < 0.1 < 0.5 < lv[mask == 3].mean()


def test_a_reference_of_one_frame_is_refused_for_all(here):
    nib.save(nib.Nifti1Image(CINE[..., 0].astype(np.uint8), AFFINE), "ref.nii.gz")
    with pytest.raises(InputError, match=r"ref.nii.gz has 1 frame\(s\), cine.nii has 6; choose one .* --frame N"):
        mona("cine.nii", "--out", "m.nii.gz", "--frame", "all", "--reference", "ref.nii.gz")
    assert not (here / "m.nii.gz").exists()


def test_damage_at_the_end_leaves_nothing_although_frames_were_done(here):
    data = gzip.compress(gzip.decompress((here / "cine.nii.gz").read_bytes())[:-100])
    (here / "cut.nii.gz").write_bytes(data)
    before = sorted(here.rglob("*"))
    with pytest.raises(InputError, match="damaged or truncated"):
        mona("cut.nii.gz", "--out", "m.nii.gz", "--frame", "all", "--probabilities", "maps")
    assert [p for p in sorted(here.rglob("*")) if p.is_file() and p not in before] == []
    (here / "scans").mkdir()
    for name in ("cut", "cine"):
        (here / f"{name}.nii.gz").rename(here / "scans" / f"{name}.nii.gz")
    with pytest.raises(CheckFailed, match=r"1 of 2 cases failed \(cut\)"):
        mona("scans", "--out", "masks", "--frame", "all")
    assert [p.name for p in (here / "masks").iterdir()] == ["cine.nii.gz"]


@pytest.mark.parametrize("frame", ["-1", "6", "ten"])
def test_a_frame_that_is_none_is_refused(here, frame):
    with pytest.raises(InputError, match="frame"):
        mona("cine.nii", "--out", "m.nii", f"--frame={frame}")


def test_the_left_ventricle_by_any_of_its_names():
    for name in ("LV", "lv_cavity", "Left Ventricle", "LV-blood-pool"):
        assert left_ventricle(["RV", "Myo", name]) == name
    assert left_ventricle(["liver", "LVM", "tumour"]) is None
    assert left_ventricle(["LV", "left ventricle"]) is None
    empty = FrameReport({"LV": ClassReport(3, 0, 0.0, [], None)})
    assert heartbeat([empty, empty]) is None
    assert heartbeat([FrameReport({"liver": ClassReport(1, 5, 5.0, [], None)})] * 2) is None


def test_frames_are_read_one_at_a_time(here):
    """A cine costs no more memory than a few of its frames."""
    program = (
        "import sys\nfrom mona_infer.cli.main import app\n"
        "app(['segment', 'long.nii.gz', '--out', sys.argv[1], '--frame', sys.argv[1].partition('.')[0], "
        "'--model', 'model.onnx'], standalone_mode=False)\n"
        "print(next(int(row.split()[1]) for row in open('/proc/self/status') if row.startswith('VmHWM')))"
    )
    long = np.tile(CINE[:, :, :, None], (4, 4, 3, 1, 1)).reshape(160, 144, 15, 6)
    long = np.repeat(long, 12, axis=3)  # 72 frames of 0.7 MB
    nib.save(nib.Nifti1Image(long, AFFINE), "long.nii.gz")
    assert sum(1 for _ in read_frames(here / "long.nii.gz")) == 72
    peaks = []
    for name in ("0.nii", "all.nii"):
        command = [sys.executable, "-c", program, name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        peaks.append(int(done.stdout.split()[-1]) / 1e3)
    assert peaks[1] - peaks[0] < 0.4 * long.nbytes / 1e6
