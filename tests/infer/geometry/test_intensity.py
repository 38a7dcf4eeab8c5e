"""Percentiles by counting are numpy's, for every stored type; bad voxels are named."""

import numpy as np
import pytest

from mona_infer import InputError, Volume
from mona_infer.geometry.intensity import intensity_range, normalise
from mona_infer.task import Intensity

AFFINE = np.diag([1.0, 1.0, 8.0, 1.0])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("ends", [(0, 100), (0.5, 99.5), (37.3, 37.4), (1, 99)])
def test_percentiles_are_numpys(dtype, ends):
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1000, (17, 13, 5)) if np.dtype(dtype).kind != "u" else rng.integers(0, 250, (17, 13, 5))
    volume = Volume(values.astype(dtype), AFFINE)
    found = intensity_range(volume, Intensity("percentile", *ends))
    expected = np.percentile(volume.intensities(volume.voxels), ends)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_one_voxel_and_one_intensity():
    assert intensity_range(Volume(np.full((1, 1, 1), 7, np.int16), AFFINE), Intensity("percentile", 1, 99)) == (7, 7)
    assert not normalise(np.full((2, 2), 7, np.float32), 7, 7).any()


def test_a_negative_slope_turns_the_range_around():
    volume = Volume(np.arange(8, dtype=np.int16).reshape(2, 2, 2), AFFINE, slope=-2.0)
    assert intensity_range(volume, Intensity()) == (-14.0, 0.0)


@pytest.mark.parametrize("rule", [Intensity(), Intensity("window", -200, 250), Intensity("percentile", 1, 99)])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_voxels_that_are_no_numbers_are_named(rule, odd):
    voxels = np.zeros((3, 3, 3), np.float32)
    voxels[1, 1, 1] = odd
    with pytest.raises(InputError, match=r"scan\.nii has voxels that are NaN or infinite"):
        intensity_range(Volume(voxels, AFFINE, source="scan.nii"), rule)
