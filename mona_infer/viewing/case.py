"""The page of one case: scan, mask and reference to look at, and its numbers with what they mean."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mona_infer import __version__
from mona_infer.geometry.intensity import normalise
from mona_infer.io.atomic import atomic_path
from mona_infer.io.label_maps import mask_ids
from mona_infer.segmenting.report import CaseReport
from mona_infer.task import LabelClass, Task
from mona_infer.viewing import niivue
from mona_infer.viewing.document import document
from mona_infer.viewing.grid import ShownGrid
from mona_infer.viewing.packed import EIGHT_BITS, HALVED, Packed, PackedScan, finite_range, packed_labels
from mona_infer.viewing.pictures import overlay, square_pixels
from mona_infer.viewing.slices import slice_numbers
from mona_infer.volume import Volume
from mona_kernels.native import Labels

SCRIPTS = ("data.js", "dom.js", "charts.js", "surface.js", "plain.js", "gpu.js", "numbers.js", "case.js")
SHOWN = (0.5, 99.5)  # percentiles of the intensities that are black and white at first
SOFT_TISSUE = (-160.0, 240.0)  # HU, if a scan looks like CT and no model says what to show
AIR = -500  # HU: no other modality has values so low
MOST_CLASSES = 190  # that NiiVue can tell apart
THUMBNAIL = 176  # pixels along its longer side


@dataclass(eq=False)
class CasePage:
    """Filled with one frame after another by `add`, then written once the case's numbers are known."""

    name: str
    classes: Sequence[LabelClass]  # without the background
    frames: int = 1
    slice_axis: int | None = None  # a stored axis; see ShownGrid
    window: tuple[float, float] | None = None  # intensities that are black and white at first
    _facts: dict[str, Any] = field(default_factory=dict, init=False)
    _slices: list[dict[str, Any]] = field(default_factory=list, init=False)
    _thumbnail: str = field(default="", init=False)

    def add(
        self,
        scan: Volume | None,
        mask: Volume,
        reference: Volume | None = None,
        sure: Sequence[float | None] | None = None,
        sure_reversed: bool = False,
    ) -> None:
        """The next frame.  Without a scan the mask is shown on black.

        `sure` is the network's confidence in each slice, from the first stored slice to the last, or the other way.
        """
        labels, wanted = mask_ids(mask), None if reference is None else mask_ids(reference)
        if not self._slices:
            self._start(scan, mask, reference is not None)
        grid, ids = self._grid, [c.id for c in self.classes]
        if scan is not None and self._scan is not None:
            self._scan.add_scan(scan, grid)
        packed_labels(self._mask, labels, ids, mask, grid)
        if self._reference is not None and wanted is not None:
            packed_labels(self._reference, wanted, ids, mask, grid)
        if sure is not None and sure_reversed != grid.slices_reversed:
            sure = sure[::-1]
        by_slice = grid.slices(labels), None if wanted is None else grid.slices(wanted)
        self._slices.append(slice_numbers(*by_slice, ids, self._pixel_area(mask), sure))
        if not self._thumbnail:
            self._thumbnail = self._picture(scan, mask, *by_slice)

    def _start(self, scan: Volume | None, mask: Volume, reference: bool) -> None:
        self.classes = self.classes[:MOST_CLASSES]
        voxels = self.frames * mask.voxels.size
        self._grid = ShownGrid.of(mask, self.slice_axis, halved=voxels > HALVED)
        self._mask = Packed("label", self.frames)
        self._reference = Packed("label", self.frames) if reference else None
        self._scan: PackedScan | None = None
        range_ = (0.0, 1.0)
        if scan is not None:
            range_ = finite_range(scan, (0, 100))
            shown = finite_range(scan, SHOWN)
            self._facts["ct"] = scan.modality == "CT" or (scan.modality is None and range_[0] < AIR)
            ct_window = SOFT_TISSUE if self._facts["ct"] else shown
            self.window = self.window or ct_window
            middle, width = sum(self.window) / 2, self.window[1] - self.window[0]
            # 8 bits are best spent on what is looked at and as much again on either side
            span = (middle - 1.5 * width, middle + 1.5 * width) if self._facts["ct"] else None
            self._scan = PackedScan(self.frames, span)
        low, high = self.window or range_
        self._facts |= {
            "axis": self._grid.slice_axis,
            "shape": list(mask.shape),
            "spacing": [round(s, 4) for s in mask.spacing],
            "window": [low, high if high > low else low + 1],
            "range": list(range_),
            "halved": self._grid.halved,
            "large": voxels > EIGHT_BITS,
        }

    def _pixel_area(self, mask: Volume) -> float:
        u, v = (self._grid.axes[n] for n in range(3) if n != self._grid.slice_axis)
        return float(np.linalg.norm(np.cross(mask.affine[:3, u], mask.affine[:3, v])))

    def _picture(self, scan: Volume | None, mask: Volume, labels: Labels, reference: Labels | None) -> str:
        """The slice in which the mask (or else the reference) is largest, as a JPEG's data URL."""
        drawn = labels if labels.any() or reference is None else reference
        sizes = np.count_nonzero(drawn, axis=(1, 2))
        k = int(sizes.argmax()) if sizes.any() else len(labels) // 2
        grey = np.zeros(labels.shape[1:], np.float32)
        if scan is not None:
            grey = normalise(scan.intensities(self._grid.slices(scan.voxels)[k]), *self._facts["window"])
        u, v = (mask.spacing[self._grid.axes[n]] for n in range(3) if n != self._grid.slice_axis)
        task = Task("page", (LabelClass(0, "background", (0, 0, 0)), *self.classes))
        picture = square_pixels(overlay(np.nan_to_num(_upright(grey)), _upright(drawn[k]), task), (v, u))
        return jpeg(picture)

    def write(
        self,
        path: Path,
        report: CaseReport,
        *,
        rules: Sequence[str] = (),
        made_by: str = "",
        back: str = "",
        files: Sequence[str] = (),
    ) -> None:
        """Write the page.  `back` is the address of the page of all cases; `files` are named on it."""
        listed = [{"id": c.id, "name": c.name, "colour": list(c.colour)} for c in self.classes]
        known = report.to_json() if report.error is None else {}
        frames = known.get("frames") or [{key: known.get(key) for key in ("classes", "scores")}]
        about = {
            **self._facts,
            "name": self.name,
            "version": __version__,
            "made_by": made_by,
            "back": back,
            "files": list(files),
            "classes": listed,
            "frames": [f | {"slices": s} for f, s in zip(frames, self._slices, strict=True)],
            "interval": report.frame_interval_ms,
            "cine": report.cine.to_json() if report.cine else None,
            "warnings": report.warnings,
            "rules": list(rules),
            "bits": self._scan.bits if self._scan else 0,
            "reference": self._reference is not None,
        }
        layers = {"scan": self._scan, "mask": self._mask, "reference": self._reference}
        data: dict[str, Any] = {name: layer.finish() for name, layer in layers.items() if layer is not None}
        data |= {"entry": self._entry(report), "about": about}
        if (library := niivue.packed()) is not None:
            data["niivue"] = library
            about["licence"] = niivue.licence()  # whoever passes the page on passes NiiVue on
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            file.writelines(document("case.html", self.name, SCRIPTS, data))

    def _entry(self, report: CaseReport) -> dict[str, Any]:
        """What the page of all cases says of this one."""
        first = report.frames[0] if report.frames else None
        scores = [s.dsc for f in report.frames for s in (f.scores or {}).values()]
        sure = [c.confidence for f in report.frames for c in f.classes.values() if c.confidence is not None]
        return {
            "name": self.name,
            "thumbnail": self._thumbnail,
            "ml": {name: entry.ml for name, entry in first.classes.items()} if first else {},
            "dsc": round(float(np.mean(scores)), 4) if scores else None,
            "sure": min(sure) if sure else None,
            "warnings": report.warnings,
            "frames": self.frames,
            "ejection_fraction": report.cine.ejection_fraction if report.cine else None,
        }


def _upright(plane: NDArray[Any]) -> NDArray[Any]:
    """A slice of x, y, z as it is looked at: the patient's right is left, front or head is up."""
    return np.ascontiguousarray(plane.T[::-1, ::-1])


def jpeg(picture: NDArray[np.uint8]) -> str:
    from PIL import Image

    image = Image.fromarray(picture)
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    packed = io.BytesIO()
    image.save(packed, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(packed.getvalue()).decode()
