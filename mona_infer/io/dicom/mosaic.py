"""Siemens mosaics: the slices of a volume stored as tiles of one image, split with the help of the CSA header.

ImagePositionPatient is for an image as large as the mosaic, with the slices' pixel spacing and the same centre, so the
first voxel is half the difference further in (nibabel, doc/source/dicom/dicom_mosaic.rst).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydicom.dataset import Dataset
from pydicom.filereader import dcmread

from mona_infer.errors import InputError
from mona_infer.io.dicom.header import MOSAIC_COUNT, Header
from mona_infer.io.dicom.slice import Floats, Slice, printable
from mona_infer.io.dicom.source import opened

# The owner of each block of group 0029 (PS3.5 7.8.1), and where that block would have the CSA image header.
BLOCKS = [tag for n in range(0x10, 0x100) for tag in (0x00290000 | n, 0x00290010 | n << 8)]
PARALLEL = 1e-5  # as nibabel: how far from 1 the cosine between the two normals may be


def is_mosaic(tags: Dataset) -> bool:
    # Raw, unless it is already converted: converting takes longer than everything else here.
    kinds = tags.get_item("ImageType").value or b"" if "ImageType" in tags else b""
    if (b"MOSAIC" if isinstance(kinds, bytes) else "MOSAIC") in kinds:
        return True
    if MOSAIC_COUNT not in tags or 0x00190010 not in tags or printable(tags[0x00190010].value) != "SIEMENS MR HEADER":
        return False
    count = tags[MOSAIC_COUNT].value
    return isinstance(count, int) and count > 1


def tiles(header: Header, images: Sequence[Slice], budget: int) -> list[Slice]:
    """The slices in a mosaic's single image."""
    name = header.file.name
    if len(images) != 1:
        raise _cannot(name, f"it has {len(images)} frames")
    (whole,) = images
    count, normal = _csa(header, budget)
    side = math.ceil(math.sqrt(count))
    rows, columns = whole.size[0] // side, whole.size[1] // side
    if (rows * side, columns * side) != whole.size or min(rows, columns) < 1:
        raise _cannot(
            name, f"{whole.size[0]}x{whole.size[1]} pixels do not divide into {side}x{side} tiles for {count} slices"
        )
    x, y = whole.orientation.reshape(2, 3)
    across = np.cross(x, y)
    cosine = float(across @ normal)
    if not abs(abs(cosine) - 1) <= PARALLEL:  # NaN too
        raise _cannot(name, f"its slice normal {normal.tolist()} is not perpendicular to the image")
    distance = header.tags.get("SpacingBetweenSlices")
    if not distance or not 0 < float(distance) < 1e4:
        raise _cannot(name, "it does not say how far apart the slices are (SpacingBetweenSlices)")
    step = across * math.copysign(float(distance), cosine)
    between_rows, between_columns = whole.spacing
    inward = x * between_columns * (whole.size[1] - columns) / 2 + y * between_rows * (whole.size[0] - rows) / 2
    return [
        replace(
            whole,
            name=f"{name} slice {k + 1}",
            size=(rows, columns),
            position=whole.position + inward + k * step,
            tile=(k // side * rows, k % side * columns),
        )
        for k in range(count)
    ]


def _csa(header: Header, budget: int) -> tuple[int, Floats]:
    """NumberOfImagesInMosaic and SliceNormalVector."""
    from nibabel.nicom import csareader

    name = header.file.name
    with opened(header.file, budget) as stream:
        assert stream is not None
        tags = dcmread(stream, stop_before_pixels=True, specific_tags=list(BLOCKS))
    try:
        csa = csareader.get_csa_header(tags, "image")
        if csa is None:
            raise _cannot(name, "its CSA header is missing, as in many anonymised files")
        count, normal = csareader.get_n_mosaic(csa), csareader.get_slice_normal(csa)
    except InputError:
        raise
    except Exception as error:  # a damaged block can raise anything
        raise _cannot(name, f"its CSA header is damaged: {printable(error)[:100]}") from error
    if not isinstance(count, int) or not 1 <= count <= 4096 or normal is None:
        raise _cannot(name, "its CSA header does not give the number or the order of its slices")
    return count, np.asarray(normal, np.float64)


def _cannot(name: str, why: str) -> InputError:
    return InputError(
        f"{name} is a Siemens mosaic that cannot be split into slices ({why}); convert the original with dcm2niix"
    )
