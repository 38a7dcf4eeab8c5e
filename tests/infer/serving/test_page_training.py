"""The whole loop by hand, with the real command: drop, look, correct, save, train, use the new model, compare."""

import json

import nibabel as nib
import numpy as np
import pytest
from helpers import models
from helpers.served import Process
from helpers.served_page import Hand, Screen, browsing
from helpers.small_runs import write_dataset

pytestmark = pytest.mark.full
LONG = 900  # seconds: beside other work, importing torch alone takes minutes


def test_from_a_dropped_scan_to_a_better_model(tmp_path):
    folder = write_dataset(tmp_path / "small", patients=6)
    models.write(tmp_path / "bands.onnx")
    served = Process(tmp_path, str(folder), "--model", "bands.onnx", "--threads", "1")
    try:
        with browsing() as browser:
            hand = Hand(browser, served.address)
            look(hand, folder)
            teach(hand, folder)
            run = train(hand, tmp_path)
            compare(hand, run, tmp_path)
            seen = hand.seen()
            assert all(address.startswith(f"{served.address}/") for address in seen["requests"])
            assert [message for message in seen["messages"] if "GPU" not in message] == []
    finally:
        served.stop()


def look(hand, folder):
    hand.open()
    hand.browser("wait", selector=".dropzone")
    hand.drop("heart.nii.gz", (folder / "imagesTr/heart0_0000.nii.gz").read_bytes())
    hand.shown("scan")
    assert "mL" in hand.text(".legend")


def teach(hand, folder):
    """One stroke in a label that was given."""
    image = nib.load(folder / "imagesTr/heart0_0000.nii.gz")
    path = folder / "labelsTr/heart0.nii.gz"
    before = np.asarray(nib.load(path).dataobj)
    screen = Screen(image)
    hand.go("case/heart0")
    hand.shown("case")
    hand.start_drawing("p", 3)
    hand.draw((2, 2), (2, 12), screen=screen)
    hand.click("#save")
    hand.browser("wait", selector="main[data-saved]")
    edit = [(2, y) for y in range(2, 13)], 3
    assert np.array_equal(np.asarray(nib.load(path).dataobj), screen.painted(image, before, image.shape[2] // 2, edit))


def train(hand, tmp_path):
    hand.go("training")
    hand.shown("training")
    hand.click("form details summary")
    hand.browser("fill", selector="input[name=steps]", value=12)
    hand.click("#train")
    hand.browser("wait", selector="main progress", seconds=LONG)
    hand.browser("wait", selector=".card .use", seconds=LONG)
    hand.click(".card .use")
    run = hand.evaluate("document.querySelector('.card .use').dataset.run")
    hand.browser("wait", selector="#say .toast")
    assert run in hand.text("#model")
    assert "In use" in hand.text(".runs")
    results = json.loads((tmp_path / "runs" / run / "results.json").read_text())
    assert f"{results['best']['dsc']:.3f}" in hand.text(".runs")
    return run


def compare(hand, run, tmp_path):
    hand.click(".card a[href^='#/compare']")
    hand.shown("compare")
    assert hand.evaluate("[...document.querySelectorAll('select')].map((field) => field.value)")[2] == run
    hand.click("#compare")
    hand.browser("wait", selector="[data-compared]", seconds=LONG)
    assert hand.evaluate("[...document.querySelectorAll('figcaption')].map((found) => found.firstChild.data)") == [
        "Before",
        "After",
        "Label",
    ]
    assert "differ in" in hand.text(".compare-head")
    before, after = (hand.browser.picture(tmp_path / f"{n}.png", f"figure:nth-child({n}) canvas") for n in (1, 2))
    assert before.shape == after.shape and np.any(before != after)
