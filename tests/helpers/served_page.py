"""The page of `mona serve` in Chromium, and where on the screen a voxel is: worked out here, not asked of the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from numpy.typing import NDArray

from helpers.browser import Browser, start

STAGE = "main .pane canvas"


@contextmanager
def browsing() -> Iterator[Browser]:
    browser = start()
    try:
        yield browser
    finally:
        browser.close()


class Hand:
    """What a user's hand does to the page at `address`."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser, self.address = browser, address

    def open(self, place: str = "", **options: Any) -> None:
        options = {"width": 1000, "height": 700, **options}  # small: software draws it
        self.browser("open", url=f"{self.address}/{options.pop('query', '')}#/{place}", **options)

    def go(self, place: str) -> None:
        self.browser("evaluate", code=f"location.hash = {'#/' + place!r}")

    def shown(self, page: str, seconds: float = 240) -> None:
        self.browser("wait", selector=f"main[data-shown={page}]", seconds=seconds)

    def click(self, selector: str) -> None:
        self.browser("click", selector=selector)

    def press(self, *keys: str) -> None:
        self.browser.press(*keys)

    def drop(self, name: str, content: bytes) -> None:
        self.browser("drop", selector=".dropzone", name=name, base64=base64.b64encode(content).decode())

    def text(self, selector: str) -> str:
        return str(self.browser("text", selector=selector))

    def evaluate(self, code: str) -> Any:
        return self.browser("evaluate", code=code)

    def seen(self) -> dict[str, list[str]]:
        return dict(self.browser("seen"))

    def picture(self, path: Path) -> NDArray[np.uint8]:
        return self.browser.picture(path, STAGE)

    def start_drawing(self, tool: str, number: int) -> None:
        """With a brush of one voxel."""
        if self.evaluate("document.querySelector('.draw-tools') === null"):
            self.click("#correct")
        self.press(str(number), *["["] * 3, tool)

    def draw(self, *voxels: tuple[int, int], screen: Screen) -> None:
        """Drag over voxels of the shown slice; one is a click."""
        box = self.evaluate(f"(({{left, top, width, height}}) => [left, top, width, height])"
                            f"(document.querySelector({STAGE!r}).getBoundingClientRect())")  # fmt: skip
        points = [screen.point(voxel, box) for voxel in voxels]
        self.browser("drag", path=points if len(points) > 1 else points * 2)


class Screen:
    """Where the voxels of a scan's middle slice are drawn: fitted into the canvas, the patient's right on the left."""

    def __init__(self, image: nib.Nifti1Image) -> None:
        world = nib.as_closest_canonical(image)
        self.shape = world.shape
        spacing = np.linalg.norm(world.affine[:3, :3], axis=0)
        self.axis = int(np.argmax(spacing))  # these scans have thick slices
        self.across, self.down = [axis for axis in range(3) if axis != self.axis]
        self.width, self.height = (spacing[axis] * self.shape[axis] for axis in (self.across, self.down))
        self.spacing = spacing

    def point(self, voxel: tuple[int, int], box: list[float]) -> tuple[float, float]:
        """`voxel`: indices in world order along the two shown axes."""
        left, top, width, height = box
        scale = min(width / self.width, height / self.height)
        x = (self.shape[self.across] - voxel[0] - 0.5) * self.spacing[self.across] * scale
        y = (self.shape[self.down] - voxel[1] - 0.5) * self.spacing[self.down] * scale
        return left + (width - self.width * scale) / 2 + x, top + (height - self.height * scale) / 2 + y

    def pixel(self, voxel: tuple[int, int], picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        x, y = self.point(voxel, [0, 0, picture.shape[1], picture.shape[0]])
        return picture[int(y), int(x)]

    def painted(self, image: nib.Nifti1Image, label: NDArray[np.uint8], slice_: int, *edits: Any) -> NDArray[np.uint8]:
        """The label in file order after `edits`: (voxels along the shown axes, id)."""
        world = nib.as_closest_canonical(nib.Nifti1Image(label, image.affine))
        changed = np.asarray(world.dataobj).copy()
        for voxels, id_ in edits:
            for voxel in voxels:
                place = [0, 0, 0]
                place[self.axis], place[self.across], place[self.down] = slice_, *voxel
                changed[tuple(place)] = id_
        back = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.io_orientation(image.affine))
        return np.ascontiguousarray(nib.orientations.apply_orientation(changed, back)).astype(np.uint8)
