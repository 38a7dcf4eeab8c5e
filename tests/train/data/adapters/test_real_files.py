"""ACDC and Hippocampus as they are shared; skipped where they are absent."""

import importlib.util
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.dataset_cases import cases_of, slices_of

from mona_infer.geometry.stack import SliceStack
from mona_train.data.adapters import adapter_named, locate

SHARED = Path(__file__).parents[5] / "shared" / "data"


@pytest.fixture(scope="module")
def real_acdc(tmp_path_factory):
    """Three patients of the real ACDC, written in both layouts by the program that comes with it."""
    pytest.importorskip("h5py", reason="h5py, of the extra `train`, is not installed")
    program = SHARED / "acdc" / "unpack.py"
    if not program.exists():
        pytest.skip(f"{program} is absent: no real ACDC to compare the layouts on")
    spec = importlib.util.spec_from_file_location("unpack", program)
    unpack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unpack)
    wanted = ("patient002_", "patient038_", "patient099_")

    class Few:
        """The archive, as if only these patients were in it."""

        def __init__(self, archive):
            self.archive, self.read = archive, archive.read

        def namelist(self):
            return [n for n in self.archive.namelist() if n.rsplit("/", 1)[-1].startswith(wanted)]

    root = tmp_path_factory.mktemp("acdc")
    with zipfile.ZipFile(unpack.ARCHIVE) as archive:
        unpack.write_ssl4mis(root / "h5", Few(archive))
        unpack.write_challenge(root / "nifti", Few(archive))
    return root


@pytest.mark.parametrize("layout", ["volumes", "slices"])
def test_real_acdc_is_the_same_in_both_layouts(real_acdc, layout, tmp_path):
    adapter = adapter_named("acdc")
    h5 = real_acdc / "h5"
    if layout == "slices":
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "slices").symlink_to(h5 / "data" / "slices", target_is_directory=True)
        h5 = tmp_path
    nifti, other = cases_of("acdc", real_acdc / "nifti"), cases_of("acdc", h5)
    people = ("002", "038", "099") if layout == "volumes" else ("038", "099")  # slices of validation are not written
    assert list(other) == [f"patient{p}_frame0{f}" for p in people for f in (1, 2)]
    for name, case in other.items():
        assert np.array_equal(nifti[name].label().voxels, case.label().voxels)
        image, label = slices_of(nifti[name], adapter.task(h5))
        same_image, same_label = slices_of(case, adapter.task(h5))
        assert label.tobytes() == same_label.tobytes() and set(np.unique(label)) == {0, 1, 2, 3}
        assert np.abs(image - same_image).max() <= 1 / 255
        sizes = [len(SliceStack(c.image(), adapter.task(h5))) for c in (nifti[name], case)]
        assert sizes[0] == sizes[1] == (16 if "099" in name else 8 if "038" in name else sizes[0])
    if layout == "volumes":
        assert [case.part for case in other.values()] == ["val"] * 2 + ["train"] * 4


def test_real_hippocampus_needs_no_configuration(tmp_path):
    archive = SHARED / "hippocampus" / "Task04_Hippocampus.tar"
    if not archive.exists():
        pytest.skip(f"{archive} is absent: no real Decathlon folder to read")
    with tarfile.open(archive) as tar:
        wanted = ("dataset.json", "_001.nii.gz", "_003.nii.gz", "_004.nii.gz")
        tar.extractall(tmp_path, [m for m in tar if m.name.endswith(wanted)], filter="data")
    folder = tmp_path / "Task04_Hippocampus"
    about = json.loads((folder / "dataset.json").read_text())
    about["training"] = about["training"][:3]
    (folder / "dataset.json").write_text(json.dumps(about))
    adapter, found = locate(str(folder))
    task, (case, *_) = adapter.task(found), adapter.cases(found)
    assert (adapter.name, task.name, task.modality, task.size) == ("folder", "Hippocampus", "MR", (64, 64))
    assert [c.name for c in task.classes] == ["background", "Anterior", "Posterior"]
    assert len(adapter.cases(found)) == 3
    image, label = slices_of(case, task)
    assert image.shape == label.shape and image.min() == 0 and image.max() == 1 and set(np.unique(label)) == {0, 1, 2}
