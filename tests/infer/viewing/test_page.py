"""What a page holds: exactly the scan and the mask, nothing of the patient, and nothing that asks for anything."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers.dicom_files import write_series
from helpers.models import scan as drawn
from helpers.orientations import ANGLES, TURNS, restored, rotation
from typer.testing import CliRunner

from mona_infer.cli.main import app
from mona_infer.task import LabelClass
from mona_infer.viewing import case, niivue, packed
from mona_infer.viewing.from_files import page_of_files
from mona_infer.viewing.names import without_folders

NAMES = {1: "RV", 2: "Myo", 3: "LV"}
AFFINE = np.array([[1.5, 0, 0, -20.0], [0, 1.25, 0, -30.0], [0, 0, 8.0, 5.0], [0, 0, 0, 1]])


@pytest.fixture(autouse=True)
def without_niivue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte less to write and read; whether it was fetched makes no difference here."""
    monkeypatch.setattr(niivue, "packed", lambda: None)


def save(path: Path, voxels: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    nib.save(nib.Nifti1Image(voxels, affine), path)
    return path


def labels(shape: tuple[int, ...] = (20, 18, 5), seed: int = 0) -> np.ndarray:
    """Three blocks and a few voxels on their own, so that no two orders look alike."""
    mask = np.zeros(shape, np.uint8)
    mask[3:9, 2:7, 1:4], mask[9:12, 2:7, 1:3], mask[5:14, 9:15, 2:] = 1, 2, 3
    mask[tuple(np.random.default_rng(seed).integers(0, n, 4) for n in shape)] = 2
    return mask


def data(page: Path) -> dict[str, object]:
    """What the page holds, by element."""
    text, found = page.read_text(encoding="utf-8"), {}
    for kind, name, content in re.findall(r'<script type="([^"]+)" id="(\w+)">(.*?)</script>', text, re.DOTALL):
        found[name] = json.loads(content) if kind == "application/json" else gzip.decompress(base64.b64decode(content))
    return found


def volume(content: object) -> nib.Nifti1Image:
    assert isinstance(content, bytes)
    return nib.Nifti1Image.from_bytes(content)


def by_place(image: nib.Nifti1Image) -> dict[tuple[float, ...], float]:
    """Value by place in the world, of what is not 0."""
    voxels = np.asarray(image.dataobj)
    at = np.argwhere(voxels)
    places = np.round(nib.affines.apply_affine(image.affine, at), 2) + 0.0
    return dict(zip(map(tuple, places), voxels[tuple(at.T)].tolist(), strict=True))


def test_scan_mask_and_reference_are_where_they_were(tmp_path: Path) -> None:
    scan = save(tmp_path / "scan.nii.gz", drawn(0, (20, 18, 5)))
    mask, reference = save(tmp_path / "mask.nii.gz", labels()), save(tmp_path / "ref.nii.gz", labels(seed=1))
    report = page_of_files(scan, mask, tmp_path / "page.html", reference=reference, names=NAMES)
    found = data(tmp_path / "page.html")
    for name, file in (("scan", scan), ("mask", mask), ("reference", reference)):
        shown = volume(found[name])
        assert by_place(shown) == by_place(nib.load(file))
        assert nib.aff2axcodes(shown.affine) == ("R", "A", "S")
    assert volume(found["scan"]).get_data_dtype() == np.int16
    about = found["about"]
    assert [c["name"] for c in about["classes"]] == ["RV", "Myo", "LV"] and about["axis"] == 2
    shown = about["frames"][0]
    assert shown["classes"]["LV"]["ml"] == report.frames[0].classes["LV"].ml
    assert shown["scores"]["Myo"]["dsc"] == pytest.approx(report.frames[0].scores["Myo"].dsc)
    a, b = labels()[:, :, 2], labels(seed=1)[:, :, 2]
    for n in range(3):
        expected = 2 * ((a == n + 1) & (b == n + 1)).sum() / ((a == n + 1).sum() + (b == n + 1).sum())
        assert shown["slices"]["dsc"][2][n] == pytest.approx(expected, abs=5e-4)
        assert shown["slices"]["areas"][2][n] == pytest.approx((a == n + 1).sum() * 1.5 * 1.25, abs=0.06)
    assert shown["slices"]["dsc"][0] == [None if not ((labels()[:, :, 0] == n) | (labels(seed=1)[:, :, 0] == n)).any()
                                         else pytest.approx(0.0) for n in (1, 2, 3)]  # fmt: skip


@pytest.mark.parametrize("angles", [ANGLES[0], ANGLES[1], ANGLES[6]], ids=str)
def test_in_all_48_orders_the_page_shows_the_same(tmp_path: Path, angles: tuple[float, ...]) -> None:
    affine = AFFINE.copy()
    affine[:3, :3] = rotation(*angles) @ affine[:3, :3]
    first = None
    for turn in TURNS:
        scan = save(tmp_path / "scan.nii", *restored(drawn(0, (20, 18, 5)), affine, *turn))
        mask = save(tmp_path / "mask.nii", *restored(labels(), affine, *turn))
        page_of_files(scan, mask, tmp_path / "page.html", names=NAMES)
        found = data(tmp_path / "page.html")
        shown = {name: volume(found[name]) for name in ("scan", "mask")}
        values = {name: np.asarray(image.dataobj) for name, image in shown.items()}
        if first is None:
            first = values, found["about"]["frames"], found["about"]["axis"], shown["mask"].affine
            assert by_place(shown["mask"]) == by_place(nib.load(mask))
        for name, voxels in values.items():
            np.testing.assert_array_equal(voxels, first[0][name])
        np.testing.assert_allclose(shown["mask"].affine, first[3], atol=1e-4)
        assert found["about"]["axis"] == first[2]
        assert found["about"]["frames"][0]["slices"] == first[1][0]["slices"]


def test_a_large_scan_is_shown_in_8_bits_and_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lower limits: the numbers are still those of the whole scan."""
    monkeypatch.setattr(packed, "EIGHT_BITS", 100)
    monkeypatch.setattr(case, "HALVED", 200)
    mask = np.zeros((9, 8, 4), np.uint8)
    mask[2:6, 2:6, 1:3] = 1
    grey = np.where(mask > 0, 3000, np.arange(9)[:, None, None] * 100).astype(np.int16)
    report = page_of_files(
        save(tmp_path / "s.nii", grey), save(tmp_path / "m.nii", mask), tmp_path / "p.html", names={1: "organ"}
    )
    found = data(tmp_path / "p.html")
    scan, shown = volume(found["scan"]), volume(found["mask"])
    assert scan.get_data_dtype() == np.uint8 and scan.shape == shown.shape == (5, 4, 4)
    assert found["about"]["halved"] and found["about"]["bits"] == 8
    assert (
        report.frames[0].classes["organ"].voxels == 32
        and found["about"]["frames"][0]["classes"]["organ"]["voxels"] == 32
    )
    np.testing.assert_array_equal(np.asarray(shown.dataobj), np.pad(np.ones((2, 2, 2)), ((1, 2), (1, 1), (1, 1))))
    np.testing.assert_allclose(scan.get_fdata()[1:3, 1:3, 1:3], 3000, atol=15)
    np.testing.assert_allclose(scan.get_fdata()[4, :, 0], 800, atol=15)  # an odd last row is on its own
    # a shown voxel lies in the middle of the four that it stands for
    np.testing.assert_allclose(scan.affine @ [1, 1, 0, 1], AFFINE @ [2.5, 2.5, 0, 1])
    np.testing.assert_allclose(scan.affine @ [1, 1, 0, 1], shown.affine @ [1, 1, 0, 1])


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int8", "uint16"])
def test_whatever_intensities_are_stored_as(tmp_path: Path, kind: str) -> None:
    grey = (drawn(0, (20, 18, 5)) / 10).astype(kind)
    if kind.startswith("float"):
        grey[0, 0, 0] = np.nan
    page_of_files(save(tmp_path / "s.nii", grey), save(tmp_path / "m.nii", labels()), tmp_path / "p.html")
    shown = volume(data(tmp_path / "p.html")["scan"])
    assert shown.get_data_dtype() in (np.uint16, np.int16, np.uint8)
    np.testing.assert_allclose(shown.get_fdata(), np.nan_to_num(grey.astype(float)), atol=0.01)


def test_every_frame_of_a_cine(tmp_path: Path) -> None:
    masks = np.stack([np.roll(labels(), n, 0) for n in range(3)], -1)
    masks[8:12, :, :, 1][masks[8:12, :, :, 1] == 3] = 0
    scan = save(tmp_path / "s.nii.gz", np.stack([drawn(n, (20, 18, 5)) for n in range(3)], -1))
    mask = save(tmp_path / "m.nii.gz", masks)
    report = page_of_files(scan, mask, tmp_path / "p.html", names=NAMES)
    found = data(tmp_path / "p.html")
    np.testing.assert_array_equal(np.asarray(volume(found["mask"]).dataobj), masks)
    assert len(found["about"]["frames"]) == 3 and found["about"]["cine"]["ES"]["frame"] == 1
    assert report.cine is not None and found["entry"]["ejection_fraction"] == report.cine.ejection_fraction
    page_of_files(scan, mask, tmp_path / "p.html", names=NAMES, frame=1)
    np.testing.assert_array_equal(np.asarray(volume(data(tmp_path / "p.html")["mask"]).dataobj), masks[..., 1])
    one = save(tmp_path / "one.nii.gz", masks[..., 1])  # as `mona segment --frame 1` writes it
    page_of_files(scan, one, tmp_path / "p.html", names=NAMES, frame=1)
    done = CliRunner().invoke(app, ["view", str(scan), str(one), "--out", str(tmp_path / "q.html")])
    assert "choose one with --frame N" in str(done.exception) and not (tmp_path / "q.html").exists()


def test_ids_become_numbers_that_a_page_can_colour(tmp_path: Path) -> None:
    mask = labels().astype(np.uint16) * 300
    scan, mask_file = save(tmp_path / "s.nii", drawn(0, (20, 18, 5))), save(tmp_path / "m.nii", mask)
    page_of_files(scan, mask_file, tmp_path / "p.html", names={300: "spleen"})
    found = data(tmp_path / "p.html")
    assert [(c["id"], c["name"]) for c in found["about"]["classes"]] == [
        (300, "spleen"),
        (600, "label 600"),
        (900, "label 900"),
    ]
    assert len({tuple(c["colour"]) for c in found["about"]["classes"]}) == 3
    np.testing.assert_array_equal(np.asarray(volume(found["mask"]).dataobj), labels())


def test_an_empty_mask_has_a_page(tmp_path: Path) -> None:
    scan, mask = save(tmp_path / "s.nii", drawn(0, (20, 18, 5))), save(tmp_path / "m.nii", 0 * labels())
    page_of_files(scan, mask, tmp_path / "p.html", names=NAMES)
    assert data(tmp_path / "p.html")["about"]["frames"][0]["classes"]["LV"]["ml"] == 0


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    hostile = '</script><script>alert(1)</script><img src=x onerror=alert(2)> & "'
    folder = tmp_path / "a"
    folder.mkdir()
    scan, mask = save(folder / "s.nii", drawn(0, (20, 18, 5))), save(folder / "m.nii", labels())
    page = tmp_path / "p.html"
    page_of_files(scan, mask, page, classes=[LabelClass(1, hostile, (1, 2, 3))], name=hostile)
    text = page.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text and "<img src=x" not in text
    assert data(page)["about"]["name"] == hostile and data(page)["about"]["classes"][0]["name"] == hostile


def test_the_page_loads_nothing_and_its_policy_says_so(tmp_path: Path) -> None:
    scan, mask = save(tmp_path / "s.nii", drawn(0, (20, 18, 5))), save(tmp_path / "m.nii", labels())
    page_of_files(scan, mask, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert not re.search(
        r"<(?:link|iframe|object|embed|base|form)\b|\son\w+=|<img\b[^>]*src=.?http", text.split("<script")[0]
    )
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    (code,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}' blob:" in policy and "default-src 'none'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org/)", code) and "innerHTML" not in code


def test_with_niivue_its_licence_is_on_the_page_and_without_it_there_is_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, mask = save(tmp_path / "s.nii", drawn(0, (20, 18, 5))), save(tmp_path / "m.nii", labels())
    monkeypatch.setattr(niivue, "packed", lambda: gzip.compress(b"var niivue"))
    page_of_files(scan, mask, tmp_path / "p.html")
    found = data(tmp_path / "p.html")
    assert found["niivue"] == b"var niivue" and found["about"]["licence"] == niivue.licence()
    monkeypatch.setattr(niivue, "packed", lambda: None)
    page_of_files(scan, mask, tmp_path / "p.html")
    found = data(tmp_path / "p.html")
    assert "niivue" not in found and "licence" not in found["about"]


def test_nothing_of_the_patient_and_no_folder_is_on_the_page(tmp_path: Path) -> None:
    """Names of files are what the user chose; the header's and the folders' are not."""
    folder = tmp_path / "Doe_Jane_1960"
    write_series(folder / "series", drawn(0, (20, 18, 5)), AFFINE, PatientName="Roe^Richard", PatientID="4711-0815")
    affine = AFFINE
    mask = save(folder / "mask.nii.gz", labels(), affine)
    for keep in ([], ["--keep-names"]):
        command = ["view", str(folder / "series"), str(mask), "--out", str(tmp_path / "p.html"), *keep]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.exception
        text = (tmp_path / "p.html").read_text(encoding="utf-8")
        assert "Roe" not in text and "4711-0815" not in text
        assert ("Doe_Jane_1960" in text) == bool(keep)
    assert without_folders([f"{mask}: odd", "b"], [mask]) == ["mask.nii.gz: odd", "b"]


def test_sentences_instead_of_tracebacks(tmp_path: Path) -> None:
    scan, mask = save(tmp_path / "s.nii", drawn(0, (20, 18, 5))), save(tmp_path / "m.nii", labels())
    other = save(tmp_path / "other.nii", labels()[:-1])
    for words, said in (
        ([str(scan), str(other)], "are not on the same grid"),
        ([str(scan), str(tmp_path / "none.nii")], "does not exist"),
        ([str(scan), str(mask), "--out", str(tmp_path / "p.txt")], "expected --out FILE.html"),
        ([str(scan), str(mask), "--classes", "RV"], "expected --classes like"),
        ([str(scan), str(mask), "--reference", str(other)], "are not on the same grid"),
    ):
        done = CliRunner().invoke(app, ["view", *words])
        assert said in str(done.exception), done.output
        assert not list(tmp_path.glob("*.html"))
    done = CliRunner().invoke(app, ["view", str(scan), str(mask)])
    assert done.output.splitlines()[-1].startswith(f"wrote {tmp_path / 'm.html'} (")


def test_windows_for_ct_and_mr(tmp_path: Path) -> None:
    for grey, window in (
        (drawn(0, (20, 18, 5)), None),
        ((drawn(0, (20, 18, 5)) * 2 - 1024).astype(np.int16), [-160, 240]),
    ):
        page_of_files(save(tmp_path / "s.nii", grey), save(tmp_path / "m.nii", labels()), tmp_path / "p.html")
        about = data(tmp_path / "p.html")["about"]
        low, high = about["window"]
        assert about["window"] == window if window else grey.min() <= low < high <= grey.max()
        assert about["ct"] == bool(window) and math.isclose(about["range"][1], grey.max())
