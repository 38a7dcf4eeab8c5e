"""Inputs on which a reader once broke its promise, as (target, what happened, input)."""

import struct

from fuzz.targets.nifti import PLAIN, header
from fuzz.targets.text_headers import META, NRRD

WORDS = bytes(4) + struct.pack("<60L", *[0x7FA00000] * 60)  # signalling NaN: arithmetic on one warns
SCALED = header(348, datatype=16, bitpix=32, scl_slope=2)
UNITS = b'space units: "m" "m" "m"\n\n' + bytes(60)
FAR = header(540, srow_x=[1e200, 0, 0, 0])  # its square is infinite

FOUND = [
    ("nifti", "a warning from scaling voxels", bytes([PLAIN]) + SCALED + WORDS),
    ("nifti", "a warning from the spacing", bytes([PLAIN]) + FAR + bytes(64)),
    ("text_headers", "a warning from the spacing", b"\2" + META.replace(b"1.5 8", b"1.5 inf") % (b"False", b"LOCAL")),
    ("text_headers", "a warning from the unit", b"\0" + NRRD.replace(b"(1.5,", b"(1e308,") % b"raw" + UNITS),
    ("text_headers", "OSError: file name too long", b"\3" + META % (b"False", b"x" * 300)),
    ("run_toml", "RecursionError", b"a = " + b"[" * 5000),
    ("checkpoint", "KeyError: channels_last", b"\2" + b'{"facts": {}}'),
    ("checkpoint", "KeyError: facts", b"\2" + b'{"channels_last": []}'),
    ("checkpoint", "a name that is no tensor", b"\2" + b'{"facts": {}, "channels_last": ["nothing"]}'),
]
