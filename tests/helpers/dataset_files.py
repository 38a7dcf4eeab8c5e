"""Tiny datasets in the exact layouts of the real ones."""

import json

import nibabel as nib
import numpy as np
import pytest

from helpers.itk_files import itk_write

SHAPE = (12, 10, 5)
THICK = np.diag([1.5, 1.5, 10.0, 1.0])  # a short-axis stack
CT = np.array([[-0.8, 0, 0, 100.0], [0, 0.8, 0, -90.0], [0, 0, 2.5, -600.0], [0, 0, 0, 1]])


def scan(seed, shape=SHAPE, dtype=np.int16, high=255):
    """Grey values that reach both ends, so that min-max keeps them as they are."""
    voxels = np.random.default_rng(seed).integers(0, high, shape, endpoint=True).astype(dtype)
    voxels.flat[:2] = 0, high
    return voxels


def mask(seed, ids=(0, 1, 2, 3), shape=SHAPE, dtype=np.uint8):
    voxels = np.random.default_rng([seed, 1]).choice(np.array(ids, dtype), shape)
    voxels.flat[: len(ids)] = ids
    return voxels


def save(path, voxels, affine=THICK):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".nrrd", ".mha"):
        return itk_write(path, voxels, affine, compress=True)
    nib.save(nib.Nifti1Image(voxels, affine), path)
    return path


def save_as_acdc(path, voxels, spacing=(1.5, 1.5, 10.0)):
    """The challenge's own header: the quaternion is right, the matrix has no scale (nnUNet#2741)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(voxels, None)
    image.header.set_zooms(spacing)
    image.header.set_qform(np.diag([-spacing[0], -spacing[1], spacing[2], 1.0]), code=1)
    image.header.set_sform(np.diag([-1.0, -1.0, 1.0, 1.0]), code=1)
    image = nib.Nifti1Image(voxels, None, image.header)
    nib.save(image, path)


def acdc_challenge(root, patients=(1, 2), frames=(1, 12), *, info=True, labels=True, write=save):
    """`frames` are the raw numbers of ED and ES."""
    for patient in patients:
        name = f"patient{patient:03d}"
        folder = root / name
        for order, frame in enumerate(frames):
            write(folder / f"{name}_frame{frame:02d}.nii.gz", scan([patient, order]))
            if labels:
                write(folder / f"{name}_frame{frame:02d}_gt.nii.gz", mask(10 * patient + order))
        save(folder / f"{name}_4d.nii.gz", np.zeros((*SHAPE, 3), np.int16))
        if info:
            ed, es = frames
            text = f"ED: {ed}\nES: {es}\nGroup: DCM\nHeight: 184.0\nNbFrame: 30\nWeight: 95.0\n"
            (folder / "Info.cfg").write_text(text)
    return root


def acdc_h5(root, patients=(1, 2), *, volumes=True, slices=True, first=1):
    """The same patients as `acdc_challenge`: [z, y, x], images 0..1."""
    h5py = pytest.importorskip("h5py", reason="h5py, of the extra `train`, is not installed")
    (root / "data" / "slices").mkdir(parents=True)
    names = []
    for patient in patients:
        for order in range(2):
            name = f"patient{patient:03d}_frame{order + 1:02d}"
            image = scan([patient, order]).transpose(2, 1, 0).astype(np.float32) / 255
            label = mask(10 * patient + order).transpose(2, 1, 0)
            names.append(name)
            if volumes:
                with h5py.File(root / "data" / f"{name}.h5", "w") as file:
                    file["image"], file["label"] = image, label
            for z in range(len(image)) if slices else ():
                with h5py.File(root / "data" / "slices" / f"{name}_slice_{z + first}.h5", "w") as file:
                    file["image"], file["label"] = image[z], label[z]
    (root / "train.list").write_text("\n".join(names[:2]) + "\n")
    (root / "val.list").write_text("\n".join(names[2:]) + "\n")
    (root / "train_slices.list").write_text("".join(f"{names[0]}_slice_{z + 1}\n" for z in range(SHAPE[2])))
    return root


def lits(root, numbers=(0, 1, 10), labelled=None, ending=".nii", folders=("", ""), affine=CT, label_affine=None):
    for n in numbers:
        image = scan(n, high=1000) - np.int16(500)
        save(root / folders[0] / f"volume-{n}{ending}", image, affine)
        if labelled is None or n in labelled:
            label = mask(n, (0, 1, 2))
            grid = affine if label_affine is None else label_affine
            save(root / folders[1] / f"segmentation-{n}{ending}", label, grid)
    return root


def mmwhs(root, kind="ct", numbers=(1001, 1002), tests=(2001,), ids=(0, 205, 420, 500, 550, 600, 820, 850)):
    for n in numbers:
        save(root / f"{kind}_train_{n}_image.nii.gz", scan(n), CT)
        save(root / f"{kind}_train_{n}_label.nii.gz", mask(n, ids, dtype=np.int16), CT)
    for n in tests:
        save(root / f"{kind}_test_{n}_image.nii.gz", scan(n), CT)
    return root


def decathlon(root, names=("liver_1", "liver_2"), unlabelled=(), tests=(), **more):
    for n, name in enumerate((*names, *unlabelled)):
        save(root / "imagesTr" / f"{name}.nii.gz", scan(n))
        (root / "imagesTr" / f"._{name}.nii.gz").write_bytes(b"\0\5\x16\7 macOS")
        if name in names:
            save(root / "labelsTr" / f"{name}.nii.gz", mask(n, (0, 1, 2)))
    for n, name in enumerate(tests):
        save(root / "imagesTs" / f"{name}.nii.gz", scan(100 + n))
    about = {
        "name": "Liver",
        "tensorImageSize": "3D",
        "modality": {"0": "CT"},
        "labels": {"0": "background", "1": "liver", "2": "cancer"},
        "numTraining": len(names),
        "training": [{"image": f"./imagesTr/{n}.nii.gz", "label": f"./labelsTr/{n}.nii.gz"} for n in names],
        "test": [f"./imagesTs/{n}.nii.gz" for n in tests],
    }
    return write_about(root, about | more)


def nnunet(root, names=("la_003", "la_004"), unlabelled=(), tests=(), test_labels=(), ending=".nii.gz", **more):
    for n, name in enumerate((*names, *unlabelled)):
        save(root / "imagesTr" / f"{name}_0000{ending}", scan(n))
        if name in names:
            save(root / "labelsTr" / f"{name}{ending}", mask(n, (0, 1)))
    for n, name in enumerate(tests):
        save(root / "imagesTs" / f"{name}_0000{ending}", scan(100 + n))
        if name in test_labels:
            save(root / "labelsTs" / f"{name}{ending}", mask(100 + n, (0, 1)))
    about = {
        "channel_names": {"0": "MRI"},
        "labels": {"background": 0, "left atrium": 1},
        "numTraining": len(names),
        "file_ending": ending,
    }
    return write_about(root, about | more)


def write_about(root, about):
    root.mkdir(parents=True, exist_ok=True)
    (root / "dataset.json").write_text(json.dumps(about))
    return root
