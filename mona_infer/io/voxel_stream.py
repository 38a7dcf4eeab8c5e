"""Voxels into a file that is being written, as gzip or as they are: what the writers of NIfTI and NRRD share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO, cast

from isal import igzip

from mona_infer.volume import Volume


@contextlib.contextmanager
def packing(file: IO[bytes], gzip: bool) -> Iterator[IO[bytes]]:
    """No file name or time in the gzip header: the same mask gives the same bytes.  Finished only if all goes well."""
    packed = igzip.IGzipFile("", "wb", 2, file, 0) if gzip else None
    yield cast(IO[bytes], packed or file)
    if packed:
        packed.close()


def frame_writer(stream: IO[bytes], first: Volume) -> Callable[[Volume], None]:
    """A function that writes a frame's voxels, little endian, in the type of the first frame's."""
    stored = first.voxels.dtype.newbyteorder("<")

    def write(volume: Volume) -> None:
        for k in range(volume.shape[2]):
            stream.write(volume.voxels[:, :, k].astype(stored, copy=False).tobytes(order="F"))

    return write
