"""The NIfTI-1 and -2 header: its fields, its geometry, and a copy of it for another volume on the same grid.

Our own, because importing nibabel also imports pydicom and its codecs, which takes about as long as all other imports
of `mona segment`.  The tests compare it with nibabel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# All fields of nifti1.h and nifti2.h, so that a header can be converted to the other byte order without loss.
NIFTI1 = """sizeof_hdr:i4 data_type:S10 db_name:S18 extents:i4 session_error:i2 regular:S1 dim_info:u1 dim:8i2
intent_p1:f4 intent_p2:f4 intent_p3:f4 intent_code:i2 datatype:i2 bitpix:i2 slice_start:i2 pixdim:8f4 vox_offset:f4
scl_slope:f4 scl_inter:f4 slice_end:i2 slice_code:u1 xyzt_units:u1 cal_max:f4 cal_min:f4 slice_duration:f4 toffset:f4
glmax:i4 glmin:i4 descrip:S80 aux_file:S24 qform_code:i2 sform_code:i2 quatern_b:f4 quatern_c:f4 quatern_d:f4
qoffset_x:f4 qoffset_y:f4 qoffset_z:f4 srow_x:4f4 srow_y:4f4 srow_z:4f4 intent_name:S16 magic:S4"""
NIFTI2 = """sizeof_hdr:i4 magic:S4 eol_check:4u1 datatype:i2 bitpix:i2 dim:8i8 intent_p1:f8 intent_p2:f8 intent_p3:f8
pixdim:8f8 vox_offset:i8 scl_slope:f8 scl_inter:f8 cal_max:f8 cal_min:f8 slice_duration:f8 toffset:f8 slice_start:i8
slice_end:i8 descrip:S80 aux_file:S24 qform_code:i4 sform_code:i4 quatern_b:f8 quatern_c:f8 quatern_d:f8 qoffset_x:f8
qoffset_y:f8 qoffset_z:f8 srow_x:4f8 srow_y:4f8 srow_z:4f8 slice_code:i4 xyzt_units:i4 intent_code:i4 intent_name:S16
dim_info:u1 unused_str:S15"""
LAYOUTS = {
    size: np.dtype([(name, kind) for name, _, kind in (field.partition(":") for field in fields.split())])
    for size, fields in ((348, NIFTI1), (540, NIFTI2))
}
MAGIC = {348: b"n+1", 540: b"n+2"}  # a single file
PAIR_MAGIC = {348: b"ni1", 540: b"ni2"}  # the voxels are in another file
TYPES = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"}
NOT_GREY = {32: "complex64", 128: "RGB", 1536: "float128", 1792: "complex128", 2048: "complex256", 2304: "RGBA"}
INTENTS = {"none": 0, "label": 1002}
METRES, MILLIMETRES, MICRONS = 1, 2, 3  # the lower three bits of xyzt_units


class Header:
    """`header[name]` is a field of the standard, readable and writable."""

    def __init__(self, fields: NDArray[Any]) -> None:
        self._fields = fields  # a 0-d structured array
        self.spm_origin: NDArray[np.int16] | None = None  # Analyze only: the voxel at (0, 0, 0), counted from 1

    @classmethod
    def read(cls, block: bytes) -> Header | None:
        """The header in the first 348 or 540 bytes of a file; None if they are not a header."""
        if len(block) not in LAYOUTS:
            return None
        fields = np.frombuffer(bytearray(block), LAYOUTS[len(block)].newbyteorder("<")).reshape(())
        for found in (fields, fields.view(fields.dtype.newbyteorder(">"))):
            if int(found["sizeof_hdr"]) == len(block):
                return cls(found)
        return None

    @classmethod
    def empty(cls, size: int) -> Header:
        made = cls(np.zeros((), LAYOUTS[size].newbyteorder("<")))
        made["sizeof_hdr"] = size
        made["pixdim"] = 1
        made["xyzt_units"] = MILLIMETRES
        if size == 540:
            made["eol_check"] = tuple(b"\r\n\x1a\n")
        return made

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._fields[name] = value

    def __bytes__(self) -> bytes:
        return self._fields.tobytes()

    @property
    def size(self) -> int:
        return self._fields.dtype.itemsize

    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the voxels, in the file's byte order; None if they are not grey values."""
        code = int(self["datatype"])
        return np.dtype(TYPES[code]).newbyteorder(self._fields.dtype["dim"].base.byteorder) if code in TYPES else None

    def copy_for(self, shape: tuple[int, ...], dtype: np.dtype[Any], intent: str) -> Header:
        """The same geometry, codes and units, in little endian, for voxels of that shape and type."""
        made = Header(self._fields.astype(LAYOUTS[self.size].newbyteorder("<")))
        made["dim"] = [len(shape), *shape] + [1] * (7 - len(shape))
        made["pixdim"][len(shape) + 1 :] = 1
        made["datatype"] = next(code for code, name in TYPES.items() if np.dtype(name) == dtype.newbyteorder("="))
        made["bitpix"] = 8 * dtype.itemsize
        made["magic"], made["vox_offset"] = MAGIC[self.size], self.size + 4
        made["cal_min"] = made["cal_max"] = 0
        made["intent_code"], made["intent_name"] = INTENTS[intent], b""
        made["intent_p1"] = made["intent_p2"] = made["intent_p3"] = 0
        made["descrip"] = b"written by mona"
        return made

    def of_analyze(self) -> Header:
        """Only the fields that Analyze 7.5 also has; it uses the bytes of the others for something else."""
        made = Header.empty(self.size)
        for name in ("dim", "datatype", "bitpix", "pixdim", "vox_offset", "scl_slope"):
            made[name] = self[name]
        made._fields = made._fields.astype(self._fields.dtype)  # the voxels have the same byte order
        made.spm_origin = np.frombuffer(bytes(self)[253:259], self._fields.dtype["dim"].base)
        return made

    def affine(self) -> NDArray[np.float64]:
        """Voxel to world, in the header's own units: the sform if there is one, else the qform, else the spacing.

        The last as in SPM and nibabel: the first axis points left, and the centre of the volume is the origin.
        """
        out = np.eye(4)
        if self["sform_code"] != 0:
            out[:3] = [self["srow_x"], self["srow_y"], self["srow_z"]]
        elif self["qform_code"] != 0:
            out = self.qform()
        else:
            out[:3, :3] = np.diag(np.abs(np.asarray(self["pixdim"][1:4], np.float64)) * (-1, 1, 1))
            out[:3, 3] = out[:3, :3] @ ((np.asarray(self["dim"][1:4], np.float64) - 1) / -2)
        return out

    def qform(self) -> NDArray[np.float64]:
        """Method 2 of nifti1.h: the spacing, rotated by a unit quaternion; three of its numbers are stored."""
        b, c, d = (float(self[f"quatern_{name}"]) for name in "bcd")
        square = 1 - (b * b + c * c + d * d)
        if not square > -1e-5:  # rounding of float32; NaN too
            raise ValueError(f"the quaternion ({b:g}, {c:g}, {d:g}) is longer than 1")
        a = np.sqrt(max(square, 0.0))
        turn = [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
        spacing = np.array(self["pixdim"][1:4], np.float64)
        if not spacing.min() >= 0:
            raise ValueError(f"the spacing {spacing.tolist()} is negative")
        spacing[2] *= -1 if self["pixdim"][0] < 0 else 1  # qfac: a left-handed grid
        out = np.eye(4)
        out[:3, :3] = np.array(turn) * spacing
        out[:3, 3] = [self[f"qoffset_{name}"] for name in "xyz"]
        return out

    def set_affine(self, affine: NDArray[np.float64]) -> None:
        """Set sform and qform; a quaternion cannot hold shear (gantry tilt), so then only the sform is valid."""
        self["srow_x"], self["srow_y"], self["srow_z"] = affine[:3]
        self["sform_code"] = self["qform_code"] = 1
        spacing = np.sqrt((affine[:3, :3] ** 2).sum(axis=0))
        turn = affine[:3, :3] / spacing
        left_handed = np.linalg.det(turn) < 0
        turn[:, 2] *= -1 if left_handed else 1
        self["pixdim"][:4] = [-1 if left_handed else 1, *spacing]
        u, _, v = np.linalg.svd(turn)
        w, *rest = _quaternion(u @ v)  # of the nearest rotation
        for name, value in zip("bcd", rest, strict=True):
            self[f"quatern_{name}"] = value if w >= 0 else -value
        for name, value in zip("xyz", affine[:3, 3], strict=True):
            self[f"qoffset_{name}"] = value
        if not np.allclose(self.qform(), affine, atol=1e-3):
            self["qform_code"] = 0


def _quaternion(turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """w, x, y, z of a rotation: the eigenvector of Bar-Itzhack's matrix with the largest eigenvalue."""
    (a, b, c), (d, e, f), (g, h, i) = turn
    lower = [
        [a + e + i, 0, 0, 0],
        [h - f, a - e - i, 0, 0],
        [c - g, b + d, e - a - i, 0],
        [d - b, c + g, f + h, i - a - e],
    ]
    _, vectors = np.linalg.eigh(np.array(lower))
    return np.asarray(vectors[:, -1], np.float64)
