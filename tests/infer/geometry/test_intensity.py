"""Percentiles by counting are numpy's, for every stored type; bad voxels are named."""

import numpy as np
import pytest

from mona_infer import InputError, Volume
from mona_infer.geometry.intensity import contrast_of, intensity_range, normalise
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


@pytest.mark.parametrize("dtype", [np.int8, ">i2", np.uint16, np.int32], ids=str)
@pytest.mark.parametrize("slope", [2.5, -0.3])
def test_percentiles_are_those_of_scaled_intensities(dtype, slope):
    """Of types with few values these are counted as they are stored; a negative slope turns their order round."""
    values = np.random.default_rng(4).integers(0, 120, (17, 13, 5)).astype(dtype)
    volume = Volume(values, AFFINE, slope=slope, intercept=-7.0)
    found = intensity_range(volume, Intensity("percentile", 2.0, 91.5))
    np.testing.assert_allclose(found, np.percentile(volume.intensities(values), (2.0, 91.5)), rtol=1e-6)


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


@pytest.mark.parametrize("ends", [(0, 100), (1, 99), (0.5, 98.7), (2.3, 50)])
def test_contrast_is_numpys_percentiles_bit_for_bit(ends):
    rng = np.random.default_rng(5)
    for shape in ((1, 1, 1), (1, 1, 2), (3, 7, 11), (10, 31, 30)):
        pictures = rng.random(shape, np.float32)
        for shown in (pictures, np.round(20 * pictures) / np.float32(20), 1e-3 * pictures - 5):
            assert contrast_of(shown.astype(np.float32), ends) == tuple(np.percentile(shown.astype(np.float32), ends))
