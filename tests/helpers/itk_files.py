"""SimpleITK as the independent reader and writer; tests that need it are skipped by name where it is not installed."""

import numpy as np
import pytest

LPS = np.diag([-1.0, -1, 1, 1])


def sitk():
    return pytest.importorskip("SimpleITK", reason="SimpleITK (in the dev extra) is the independent reader here")


def itk_volume(path):
    """Voxels (i j k) and the affine in RAS+ millimetres, as ITK reads them."""
    module = sitk()
    image = module.ReadImage(str(path))
    affine = np.eye(4)
    affine[:3, :3] = np.array(image.GetDirection()).reshape(3, 3) * image.GetSpacing()
    affine[:3, 3] = image.GetOrigin()
    return np.asfortranarray(module.GetArrayFromImage(image).T), LPS @ affine


def itk_write(path, voxels, affine, *, compress=False):
    """Have ITK write a volume (i j k) that lies where a RAS+ affine without shear says."""
    module = sitk()
    path.parent.mkdir(parents=True, exist_ok=True)
    image = module.GetImageFromArray(np.ascontiguousarray(voxels.T))
    world = LPS @ affine
    spacing = np.sqrt((world[:3, :3] ** 2).sum(axis=0))
    image.SetSpacing(spacing.tolist())
    image.SetOrigin(world[:3, 3].tolist())
    image.SetDirection((world[:3, :3] / spacing).ravel().tolist())
    module.WriteImage(image, str(path), useCompression=compress)
    return path
