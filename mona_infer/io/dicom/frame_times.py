"""When the frames of a DICOM cine were acquired, and the NIfTI header that records it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mona_infer.io.nifti_header import MILLIMETRES, Header

if TYPE_CHECKING:
    from mona_infer.io.dicom.slice import Slice

Floats = NDArray[np.float64]
TRIGGER, CLOCK = 1, 3  # indices in slice.TIMES
SECONDS = 8  # in xyzt_units
UNEVEN = 0.1  # of the mean interval: more than this gets a note, because NIfTI can only store one interval


def frame_times(planes: Sequence[Sequence[Slice]]) -> tuple[tuple[float, ...], list[str]]:
    """Seconds from the first frame to each, averaged over the planes; and a note if NIfTI cannot store them.

    The images of each plane are in frame order.  Trigger times are preferred: they are measured within a heartbeat.
    Next is a nominal interval (FrameTime, TemporalResolution, NominalInterval), and last the scanner's clock, which
    for a cine acquired over many heartbeats only says when an image was finished.
    """
    frames = len(planes[0])
    for at, scale in ((TRIGGER, 1e-3), (None, 1e-3), (CLOCK, 1.0)):
        if at is None:
            nominal = {image.interval for plane in planes for image in plane}
            step = nominal.pop() if len(nominal) == 1 else None
            since = np.arange(frames) * step if step is not None else None
        else:
            since = _means([[_number(image.times[at], at) for image in plane] for plane in planes])
        if since is None or not (np.diff(since) > 0).all():
            continue
        times = tuple(float(t) for t in ((since - since[0]) * scale).round(6))
        gaps = np.diff(times)
        if float(np.ptp(gaps)) <= UNEVEN * float(gaps.mean()):
            return times, []
        note = f"the frames are not evenly spaced in time ({1e3 * gaps.min():.4g} to {1e3 * gaps.max():.4g} ms apart)"
        return times, [f"{note}: the mask's header has the mean, --stats has every time"]
    return (), []


def _means(values: list[list[float | None]]) -> Floats | None:
    """Time of each frame relative to the first, averaged over planes; None if a time is missing."""
    if any(value is None for plane in values for value in plane):
        return None
    table = np.array(values, np.float64)  # plane, frame
    return np.asarray((table - table[:, :1]).mean(axis=0))


def _number(value: float | str | None, at: int) -> float | None:
    """Milliseconds unchanged; a clock time (TM or DT, PS3.5 6.2) as seconds since midnight."""
    if at != CLOCK or value is None:
        return value if isinstance(value, float) else None
    whole, _, fraction = str(value).partition(".")
    fraction = fraction.partition("+")[0].partition("-")[0]
    whole = whole.replace(":", "").partition("+")[0]
    if len(whole) not in (6, 14) or not whole.isdecimal() or (fraction and not fraction.isdecimal()):
        return None
    hours, minutes, seconds = int(whole[-6:-4]), int(whole[-4:-2]), int(whole[-2:])
    return 3600 * hours + 60 * minutes + seconds + float(f"0.{fraction or 0}")


def interval(times: Sequence[float]) -> float | None:
    """Mean seconds between frames."""
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def time_header(shape: Sequence[int], affine: Floats, times: Sequence[float]) -> Header | None:
    """A NIfTI header for that grid with the interval in seconds; None if the times are not known."""
    step = interval(times)
    if step is None:
        return None
    made = Header.empty(348 if max(*shape, len(times)) < 32768 else 540)
    made.set_affine(affine)
    made["pixdim"][4] = step
    made["xyzt_units"] = MILLIMETRES | SECONDS
    return made
