"""The page in Chromium, as a user's hand would use it: drop, look, correct, save; what is on the screen and on disk."""

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.orientations import ANGLES, TURNS, restored, rotation
from helpers.served import THICK, dataset, listening, nifti, site_at
from helpers.served_page import Hand, Screen, browsing

SLICE = 2  # of 5, in the middle


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


def turned_dataset(root, turns, angles):
    """The same scan and label, stored in other orders; all oblique by `angles`."""
    folder = root
    affine = np.diag([1.5, 1.8, 8.0, 1.0])
    affine[:3, :3] = rotation(*angles) @ affine[:3, :3]
    voxels, ids = models.scan(0), (models.scan(0) // 260).astype(np.uint8)
    for place in ("imagesTr", "labelsTr"):
        (folder / place).mkdir(parents=True)
    dataset(folder, labelled=0, unlabelled=0)
    for n, (axes, flips) in enumerate(turns):
        for what, name in ((voxels, f"imagesTr/turn{n:02d}_0000"), (ids, f"labelsTr/turn{n:02d}")):
            stored, placed = restored(what, affine, axes, flips)
            (folder / f"{name}.nii.gz").write_bytes(nifti(stored, placed))
    return folder


def pixel_is(found, colour):
    """Of a pixel under half of a class's colour, whichever grey is below it."""
    tint = found.astype(int) - np.array(colour) // 2
    return np.ptp(tint) <= 12 and tint.min() >= -8


def correct(hand, folder, case):
    """Draw in the label of a case, save, and compare the file with what the hand did."""
    image = nib.load(folder / f"imagesTr/{case}_0000.nii.gz")
    path = folder / f"labelsTr/{case}.nii.gz"
    before = np.asarray(nib.load(path).dataobj)
    screen = Screen(image)
    hand.go(f"case/{case}")
    hand.browser("wait", selector=f"main[data-shown=case][data-case='{case}']")
    hand.start_drawing("p", 3)
    row = [(x, 6) for x in range(4, 15)]
    hand.draw((4, 6), (14, 6), screen=screen)
    hand.draw((20, 20), screen=screen)
    hand.press("1")
    hand.draw((3, 30), screen=screen)
    hand.draw((8, 30), screen=screen)
    hand.press("Control+z")  # the last dot
    hand.press("e")
    hand.draw((9, 6), screen=screen)
    hand.press("Control+s")
    hand.browser("wait", selector="main[data-saved]")
    edits = (row, 3), ([(20, 20)], 3), ([(3, 30)], 1), ([(9, 6)], 0)
    expected = screen.painted(image, before, SLICE, *edits)
    saved = nib.load(path)
    assert np.array_equal(np.asarray(saved.dataobj), expected)
    assert saved.shape == image.shape
    assert np.array_equal(saved.affine, image.affine)
    kept = sorted((folder / "labels-before").glob(f"{case}.*.nii.gz"))
    assert np.array_equal(np.asarray(nib.load(kept[0]).dataobj), before)


def test_drop_a_scan_see_its_mask_then_correct_a_case_and_save(tmp_path, browser):
    folder = turned_dataset(tmp_path / "hearts", [TURNS[0], TURNS[29]], ANGLES[1])
    with site_at(tmp_path, model=models.write(tmp_path / "bands.onnx"), dataset=folder) as site, listening(site) as url:
        colours = {c.id: c.colour for c in site.dataset.classes}  # and not the model's: one colour on all pages
        hand = Hand(browser, url)
        hand.open()
        hand.browser("wait", selector=".dropzone")
        voxels = models.scan(5)
        hand.drop("anna-muster.nii.gz", nifti(voxels))
        hand.shown("scan")
        screen = Screen(nib.Nifti1Image(voxels, THICK))
        mask = (models.scan(5) // 250).clip(0, 3)
        places = {id_: tuple(np.argwhere(surrounded(mask[..., SLICE], id_))[0]) for id_ in (1, 2, 3)}
        picture = hand.picture(tmp_path / "mask.png")
        for id_, voxel in places.items():
            assert pixel_is(screen.pixel(voxel, picture), colours[id_]), (id_, voxel, screen.pixel(voxel, picture))
        hand.click(".legend-entry:nth-child(4)")  # hides the third class
        hidden = screen.pixel(places[3], hand.picture(tmp_path / "hidden.png"))
        assert np.ptp(hidden) <= 6  # grey again
        assert "muster" not in hand.text("body").lower()  # names of files may be names of patients
        nothing_left_the_machine(hand, url)
        place = hand.evaluate("location.hash")[2:]
        hand.open(place, query="?viewer=plain", scheme="dark", width=390)
        hand.shown("scan")
        assert "not draw" in hand.text(".pane .notice")
        picture = hand.picture(tmp_path / "plain.png")
        for id_, voxel in places.items():
            assert pixel_is(screen.pixel(voxel, picture), colours[id_]), (id_, voxel, screen.pixel(voxel, picture))
        hand.open("cases")
        hand.shown("cases")
        assert hand.evaluate("document.querySelectorAll('.case-card').length") == 2
        correct(hand, folder, "turn01")
        assert "Corrected here" in hand.text("main .badges")
        hand.press("p", "3")
        hand.draw((6, 12), (30, 12), screen=Screen(nib.load(folder / "imagesTr/turn01_0000.nii.gz")))
        hand.go("cases")  # with a stroke that is not saved
        hand.click("dialog button[value=stay]")
        assert hand.evaluate("location.hash") == "#/case/turn01"
        hand.go("cases")
        hand.click("dialog button[value=drop]")
        hand.shown("cases")
        nothing_left_the_machine(hand, url)
    hand.go("cases/again")  # the server is gone
    hand.browser("wait", selector="main .notice")
    assert "Check that `mona serve` is still running" in hand.text("main .notice")


def nothing_left_the_machine(hand, url):
    """Nor did the browser complain, such as of something that the content security policy forbids."""
    seen = hand.seen()
    assert [address for address in seen["requests"] if not address.startswith(f"{url}/")] == []
    assert [message for message in seen["messages"] if "GPU" not in message] == []


def surrounded(plane, id_):
    """Pixels whose neighbours are all of the same class: colour there is not mixed at an edge."""
    same = np.pad(plane == id_, 1)
    near = [np.roll(same, (dx, dy), (0, 1)) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
    return np.all(near, 0)[1:-1, 1:-1]


def test_fill_remove_a_piece_protect_and_redo(tmp_path, browser):
    folder = turned_dataset(tmp_path / "hearts", [TURNS[17]], ANGLES[0])
    image = nib.load(folder / "imagesTr/turn00_0000.nii.gz")
    screen, path = Screen(image), folder / "labelsTr/turn00.nii.gz"
    piece = [(x, y) for x in range(20, 25) for y in range(20, 24)]
    other = [(x, 22) for x in range(27, 30)]  # of the same class, and not connected
    start = screen.painted(image, np.zeros(image.shape, np.uint8), SLICE, (piece, 2), (other, 2))
    nib.save(nib.Nifti1Image(start, image.affine), path)
    with site_at(tmp_path, model=models.write(tmp_path / "bands.onnx"), dataset=folder) as site, listening(site) as url:
        hand = Hand(browser, url)
        hand.open("case/turn00")
        hand.shown("case")
        hand.start_drawing("f", 1)
        hand.draw((3, 3), (3, 10), (12, 10), (12, 3), (4, 3), screen=screen)
        hand.press("r")
        hand.draw((22, 21), screen=screen)
        hand.click(".check input")
        hand.press("p", "3")
        hand.draw((8, 15), (8, 5), screen=screen)  # only outside of what was filled
        hand.press("Control+z", "Control+z", "Control+Shift+z", "Control+y", "Control+s")
        hand.browser("wait", selector="main[data-saved]")
    area = [(x, y) for x in range(3, 13) for y in range(3, 11)]
    edits = (area, 1), (piece, 0), ([(8, y) for y in range(11, 16)], 3)
    assert np.array_equal(np.asarray(nib.load(path).dataobj), screen.painted(image, start, SLICE, *edits))


@pytest.mark.full
@pytest.mark.parametrize("angles", [ANGLES[0], ANGLES[1]])
def test_a_correction_is_saved_to_the_voxel_in_all_48_orders(tmp_path, browser, angles):
    folder = turned_dataset(tmp_path / "hearts", TURNS, angles)
    with site_at(tmp_path, model=models.write(tmp_path / "bands.onnx"), dataset=folder) as site, listening(site) as url:
        hand = Hand(browser, url)
        hand.open("cases")
        hand.shown("cases")
        for n in range(len(TURNS)):
            correct(hand, folder, f"turn{n:02d}")
