"""Pages in Chromium: every pixel of a slice, what keys and buttons do, and that nothing is asked of anybody."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from helpers import browser
from helpers.browser import Browser
from helpers.models import scan as drawn
from helpers.orientations import TURNS, restored, rotation
from numpy.typing import NDArray

from mona_infer.viewing import niivue
from mona_infer.viewing.cohort import Listed, case_page, listed, write_index
from mona_infer.viewing.from_files import COLOURS, coloured, page_of_files

pytestmark = pytest.mark.xdist_group("browser")
NAMES = {1: "RV", 2: "Myo", 3: "LV"}
SHAPE, SPACING = (40, 32, 6), (1.5, 1.5, 8.0)
OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = rotation(10, -20, 30) * SPACING
OBLIQUE[:3, 3] = 11, -7, 30


def labels() -> NDArray[np.uint8]:
    """Front right: 1; beside it to the left: 2; at the back: 3.  No two orders look alike."""
    mask = np.zeros(SHAPE, np.uint8)
    mask[22:28, 18:24, 1:4], mask[14:22, 16:24, 1:5], mask[12:26, 8:13, 2:] = 1, 2, 3
    return mask


def reference() -> NDArray[np.uint8]:
    """As the mask, but for slice 4 (of 1..6), where half is missing."""
    true = labels()
    true[:, :22, 3] = 0
    return true


def write(folder: Path, affine: NDArray[np.float64] = OBLIQUE, turn: tuple = TURNS[0], **options: object) -> Path:
    files = {}
    for name, voxels in (("scan", drawn(0, SHAPE)), ("mask", labels()), ("reference", reference())):
        files[name] = folder / f"{name}.nii.gz"
        nib.save(nib.Nifti1Image(*restored(voxels, affine, *turn)), files[name])
    if not options.pop("compare", True):
        files["reference"] = None
    page_of_files(
        files["scan"], files["mask"], folder / "page.html", reference=files["reference"], names=NAMES, **options
    )
    return folder / "page.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    started = browser.start()
    yield started
    started.close()


@pytest.fixture(params=["niivue", "plain"])
def viewer(request: pytest.FixtureRequest) -> str:
    if request.param == "niivue" and niivue.library() is None:
        pytest.skip("NiiVue was not fetched: `python -m mona_infer.viewing.niivue`")
    return str(request.param)


def opened(chromium: Browser, page: Path, viewer: str, **options: object) -> None:
    chromium.open(page, plain=viewer == "plain", **({"width": 880, "height": 640} | options))  # small: software GL
    assert chromium("evaluate", code="document.documentElement.dataset.viewer") == viewer


def voxels_on_screen(picture: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The colour at the middle of each voxel (x, y) of the slice that fills the stage: right is left, front is up."""
    height, width = picture.shape[:2]
    nx, ny = SHAPE[:2]
    scale = min(width / (nx * SPACING[0]), height / (ny * SPACING[1]))
    x = (width - nx * SPACING[0] * scale) / 2 + (nx - 1 - np.arange(nx) + 0.5) * SPACING[0] * scale
    y = (height - ny * SPACING[1] * scale) / 2 + (ny - 1 - np.arange(ny) + 0.5) * SPACING[1] * scale
    return picture[y.astype(int)][:, x.astype(int)].transpose(1, 0, 2).astype(np.int64)


def test_mask_and_reference_lie_on_the_scan(chromium: Browser, viewer: str, tmp_path: Path) -> None:
    opened(chromium, write(tmp_path), viewer)

    def stage() -> NDArray[np.int64]:
        return voxels_on_screen(chromium.picture(tmp_path / "stage.png", "#stage"))

    def slider(k: int) -> NDArray[np.int64]:
        chromium(
            "evaluate",
            code=f"const s = document.getElementById('slice'); s.value = {k}; s.dispatchEvent(new Event('input'))",
        )
        return stage()

    # The letters of the orientation lie at the edges
    inner = np.s_[4:-4, 4:-4]
    chromium.press("r", "s")  # no reference, square pixels
    masked = {k: slider(k) for k in (3, 5)}
    chromium.press("m")
    grey = {k: slider(k) for k in (3, 5)}
    for k, picture in grey.items():
        low, high = chromium("evaluate", code="JSON.parse(document.getElementById('about').textContent).window")
        expected = np.clip((drawn(0, SHAPE)[:, :, k - 1] - low) / (high - low), 0, 1) * 255
        assert np.abs(picture - expected[..., None])[inner].max() <= 4, "the scan itself"
        label = labels()[:, :, k - 1]
        tinted = picture.copy()
        for n, colour in enumerate(COLOURS[:3], start=1):
            tinted[label == n] = (picture[label == n] + np.array(colour)) // 2
        assert np.abs(masked[k] - tinted)[inner].max() <= 5, "the mask, where it is and nowhere else"

    chromium.press("r")
    chromium("click", selector="#filled")
    compared = slider(4)
    where = reference()[:, :, 3] > 0
    chromium.press("r")
    bare = slider(4)
    changed = np.abs(compared - bare).sum(axis=-1) > 12
    np.testing.assert_array_equal(changed[inner], where[inner])

    # a class alone, off and on again
    chromium.press("m", "1")
    label, without = labels()[:, :, 3], slider(4)
    np.testing.assert_array_equal((np.abs(without - bare).sum(axis=-1) > 12)[inner], (label > 1)[inner])
    chromium("click", selector="#class-1")
    np.testing.assert_array_equal((np.abs(stage() - bare).sum(axis=-1) > 12)[inner], (label > 0)[inner])
    found = chromium("seen")
    assert found["messages"] == [] and len(found["requests"]) == 1


def test_keys_buttons_and_jumps(chromium: Browser, viewer: str, tmp_path: Path) -> None:
    opened(chromium, write(tmp_path), viewer)

    def at() -> int:
        return int(chromium("evaluate", code="document.documentElement.dataset.slice"))

    first = at()
    chromium.press("ArrowUp")
    assert at() == min(first + 1, 6)
    chromium.press("ArrowDown", "ArrowDown")
    assert at() == first - 1
    chromium.press("w")
    assert at() == 4  # the slice that differs most
    chips = chromium("evaluate", code="[...document.querySelectorAll('#worst .chip')].map((c) => c.textContent)")
    assert chips[0].startswith("slice 4, DSC 0.") and len(chips) == 1
    chromium.press("Home", "ArrowDown")
    chromium("click", selector="#worst .chip")
    assert at() == 4
    chromium("click", selector=".strip .column:nth-child(2)")
    assert at() == 2
    # a click on the picture tells what is there: the middle of class 3, then of nothing
    chromium.press("4")  # no class 4: nothing happens
    box = chromium(
        "evaluate",
        code="(({ width, height }) => [width, height])(document.getElementById('stage').getBoundingClientRect())",
    )
    scale = min(box[0] / (SHAPE[0] * SPACING[0]), box[1] / (SHAPE[1] * SPACING[1]))
    chromium.press("w")
    for (x, y), what in (
        ((20, 10), "mask: LV, reference: background"),
        ((24, 23), "mask: RV, reference: RV"),
        ((3, 15), "mask: background"),
    ):
        place = {
            "x": box[0] / 2 + (SHAPE[0] / 2 - x - 0.5) * SPACING[0] * scale,
            "y": box[1] / 2 + (SHAPE[1] / 2 - y - 0.5) * SPACING[1] * scale,
        }
        chromium("click", selector="#stage", position=place)
        assert what in chromium("evaluate", code="document.getElementById('place').textContent")
        world = (OBLIQUE @ [x, y, 3, 1])[:3]
        said = chromium("evaluate", code="document.getElementById('place').textContent").split(")")[0][1:]
        np.testing.assert_allclose([float(w) for w in said.split(",")], world, atol=0.06)

    views = []
    for name in ("slice", "planes", *(["3d"] if viewer == "niivue" else [])):
        views.append(chromium.picture(tmp_path / f"{name}.png", "#stage").astype(int))
        chromium.press("v")
    assert all((np.abs(a - b) > 30).mean() > 0.01 for a, b in pairwise(views))
    if viewer == "niivue":  # surfaces in the colours of the classes, and nothing grey
        solid = views[2].reshape(-1, 3)
        assert ((solid[:, 2] > solid[:, 0] + 60).sum() > 500) and ((solid[:, 0] > solid[:, 2] + 60).sum() > 500)
    else:
        assert chromium("evaluate", code="[...document.querySelectorAll('#views button')].map((b) => b.disabled)") == [
            False,
            False,
            True,
        ]
    chromium.press("z")
    zoomed = chromium.picture(tmp_path / "zoom.png", "#stage").astype(int)
    assert (np.abs(zoomed - views[0]) > 30).mean() > 0.01
    chromium.press("0")
    assert at() == first
    assert chromium("seen") == {"requests": chromium("seen")["requests"], "messages": []}
    assert len(chromium("seen")["requests"]) == 1


def test_a_cine_moves_frame_by_frame(chromium: Browser, viewer: str, tmp_path: Path) -> None:
    scans = np.stack([drawn(n, SHAPE) for n in range(3)], -1)
    masks = np.stack([np.roll(labels(), -4 * n, 0) for n in range(3)], -1)
    masks[14:, :, :, 1][masks[14:, :, :, 1] == 3] = 0  # the left ventricle is smallest in the second frame
    for name, voxels in (("scan", scans), ("mask", masks)):
        nib.save(nib.Nifti1Image(voxels, OBLIQUE), tmp_path / f"{name}.nii.gz")
    page_of_files(tmp_path / "scan.nii.gz", tmp_path / "mask.nii.gz", tmp_path / "page.html", names=NAMES)
    opened(chromium, tmp_path / "page.html", viewer)
    chromium.press("s")
    k = int(chromium("evaluate", code="document.documentElement.dataset.slice")) - 1
    for n in range(3):
        with_mask = voxels_on_screen(chromium.picture(tmp_path / "stage.png", "#stage"))
        chromium.press("m")
        without = voxels_on_screen(chromium.picture(tmp_path / "stage.png", "#stage"))
        chromium.press("m")
        changed = np.abs(with_mask - without).sum(axis=-1) > 12
        np.testing.assert_array_equal(changed[4:-4, 4:-4], (masks[:, :, k, n] > 0)[4:-4, 4:-4])
        text = "[...document.querySelectorAll('#frame-at, .classes td')].map((e) => e.textContent)"
        shown = chromium("evaluate", code=text)
        assert shown[0] == f"{n + 1} / 3"
        volumes = [f"{(masks[..., n] == label).sum() * 0.018:.{2}f}" for label in (1, 2, 3)]
        assert [f"{float(ml):.1f}" for ml in shown[1:]] == [f"{float(ml):.1f}" for ml in volumes]
        chromium.press("ArrowRight")
    assert chromium("evaluate", code=text)[0] == "1 / 3"
    assert "at ES (frame 2)" in chromium("evaluate", code="document.getElementById('beat').textContent")
    chromium.press(" ")
    chromium("wait", selector="#play[aria-pressed=true]")
    assert chromium("seen")["messages"] == []


def test_without_webgl_there_are_plain_slices(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write(tmp_path), webgl=False)
    assert chromium("evaluate", code="document.documentElement.dataset.viewer") == "plain"
    assert len(np.unique(chromium.picture(tmp_path / "stage.png", "#stage").reshape(-1, 3), axis=0)) > 100


@pytest.mark.parametrize("turns", [[TURNS[0], TURNS[21]], pytest.param(TURNS, marks=pytest.mark.full)], ids=["2", "48"])
def test_however_it_is_stored_it_looks_the_same(chromium: Browser, viewer: str, turns: list, tmp_path: Path) -> None:
    """Class 1 in front at the right, class 3 at the back, as seen from the feet."""
    first = None
    for turn in turns:
        opened(chromium, write(tmp_path, turn=turn, compare=False), viewer, width=700, height=600)
        picture = chromium.picture(tmp_path / "stage.png", "#stage").astype(int)
        if first is None:
            first = picture
            r, g, b = (picture[..., n] for n in range(3))
            middle = {}
            for n, inside in ((1, b > r + 40), (2, g > np.maximum(r, b) + 40), (3, r > b + 40)):
                y, x = np.nonzero(inside)
                middle[n] = x.mean() / picture.shape[1], y.mean() / picture.shape[0]
            assert middle[1][0] < middle[2][0] - 0.05 and middle[1][1] < middle[3][1] - 0.2
        assert np.abs(picture - first).max() <= 2, turn


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_pages_fit_the_window_in_light_and_dark(chromium: Browser, width: int, scheme: str, tmp_path: Path) -> None:
    page = write(tmp_path)
    chromium.open(page, plain=True, width=width, height=800, scheme=scheme)
    code = "[document.documentElement.scrollWidth, getComputedStyle(document.documentElement).backgroundColor]"
    scrolled, back = chromium("evaluate", code=code)
    assert scrolled <= width
    assert (sum(int(n) for n in back[4:-1].split(",")) < 3 * 128) == (scheme == "dark")
    unnamed = """[...document.querySelectorAll('button, input, a, [role=img]')].filter((e) => !e.closest('[hidden]') &&
        !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"""
    assert chromium("evaluate", code=unnamed) == []


def test_the_page_of_all_cases(chromium: Browser, tmp_path: Path) -> None:
    index = tmp_path / "all.html"
    found = []
    for name, true in (("good", labels()), ("a/poor", reference())):
        for kind, voxels in (("scan", drawn(0, SHAPE)), ("mask", labels()), ("true", true)):
            nib.save(nib.Nifti1Image(voxels, OBLIQUE), tmp_path / f"{kind}.nii")
        page = case_page(index, name)
        files = tmp_path / "scan.nii", tmp_path / "mask.nii", page
        page_of_files(*files, reference=tmp_path / "true.nii", names=NAMES, name=name, back="../all.html")
        found.append(listed(name, page))
    write_index(index, [*found, Listed("broken", None, "<b>not a scan</b>")], coloured(NAMES), title="scans")
    chromium("open", url=index.as_uri())
    chromium("wait", selector="html[data-ready]")
    names = (
        "[...document.querySelectorAll('.cases a, .cases b')].map((e) => e.textContent).filter((t) => /[a-z]/.test(t))"
    )
    assert chromium("evaluate", code=names) == ["broken", "a/poor", "good"]
    assert "<b>not a scan</b>" in chromium("evaluate", code="document.body.textContent")
    picture = "[...document.images].map((i) => [i.complete, i.naturalWidth > 10])"
    assert chromium("evaluate", code=picture) == [[True, True]] * 2
    chromium("click", selector="#orders button:nth-child(2)")
    assert chromium("evaluate", code=names)[0] == "a/poor"
    chromium("fill", selector="#find", value="goo")
    assert chromium("evaluate", code=names) == ["good"]
    assert len(chromium("seen")["requests"]) == 1 and chromium("seen")["messages"] == []
    chromium("click", selector=".cases a")
    chromium("wait", selector="html[data-viewer]")
    assert chromium("evaluate", code="document.getElementById('name').textContent") == "good"
