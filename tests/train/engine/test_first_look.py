"""The first look: it finds the organ, all runs on a cache share it, and a resumed run keeps its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.caches import cases
from helpers.wide_phantoms import WIDE, few_phantoms
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_infer.geometry.stack import SliceStack
from mona_infer.segmenting.first_look import look
from mona_infer.task import CARDIAC, LOOK
from mona_train.config.presets import preset
from mona_train.config.schema import Config
from mona_train.data.cache import Cache
from mona_train.data.prepare import STEPS as LEVELS
from mona_train.data.prepare import prepare
from mona_train.data.resolved import Resolved, resolve
from mona_train.data.split import Split
from mona_train.engine import first_look
from mona_train.engine.first_look import (
    load_first_look,
    save_first_look,
    tiny_network,
    train_first_look,
    with_first_look,
)
from mona_train.engine.torch_engine import TorchEngine
from mona_train.networks.unet import UNetOutput
from mona_train.run import checkpoint
from mona_train.run.checkpoint import weights_hash

pytestmark = pytest.mark.xdist_group("first look")  # one worker trains it once
Corners = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Looked:
    config: Config
    cache: Cache
    before: Resolved
    after: Resolved
    network: nn.Module

    @property
    def files(self) -> set[str]:
        return {path.name for path in (self.cache.folder / "looks").iterdir()}

    def again(self, run: Path | None = None, **changes: Any) -> tuple[Resolved, nn.Module]:
        """The same for a run with other settings."""
        config = replace(self.config, **changes)
        found, network = with_first_look(config, resolve(config, WIDE, Path("here"), self.cache), self.cache, run)
        assert network is not None
        return found, network


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    """Trained on both frames of 2 of 8 hearts, for a fifth of the usual time."""
    config = preset("quick", dataset="phantom", method="unet-l", ratio=0.25, pixels=96)
    with few_phantoms(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_look, "STEPS", 100)
        cache = prepare(WIDE, Path("here"), tmp_path_factory.mktemp("wide") / "cache", pixels=config.pixels)
        before = resolve(config, WIDE, Path("here"), cache)
        assert before.task.first_look and len(before.split.labelled_patients) == 2
        after, network = with_first_look(config, before, cache)
        assert network is not None
        yield Looked(config, cache, before, after, network)


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever trains a first look gets one that knows nothing, at once."""
    monkeypatch.setattr(first_look, "train_first_look", lambda *_: tiny_network())


def share_outside(cache: Cache, corners: Corners, window: tuple[int, int]) -> float:
    """Of the organs of all cases that have a corner."""
    inside = whole = 0
    for case in (case for case in cache.cases if case.name in corners):
        organ = np.pad(cache.labels[list(case.label_rows.values())] > 0, ((0, 0), (100, 100), (100, 100)))
        top, left = (100 + at for at in corners[case.name])
        inside += int(organ[:, top : top + window[0], left : left + window[1]].sum())
        whole += int(organ.sum())
    return 1 - inside / whole


# ---- it finds the organ


def test_no_organ_of_a_training_scan_is_outside_its_window(looked: Looked) -> None:
    """Three of four scans have no label in use.  At the centre of the scans, windows would miss some of the organ."""
    cache, task, split = looked.cache, looked.after.task, looked.after.split
    training = {case.name for case in cache.cases if {*split.labelled, *split.unlabelled}.issuperset(case.rows)}
    assert looked.after.corners.keys() == training and len(training) == 16  # no validation or test case
    assert share_outside(cache, looked.after.corners, task.input_size) == 0
    rows, columns = ((n - side) // 2 for n, side in zip(cache.images.shape[1:], task.input_size, strict=True))
    assert share_outside(cache, dict.fromkeys(training, (rows, columns)), task.input_size) > 0.01
    assert 0.5 < task.least_certain < 1
    task = replace(task, least_certain=0.0)
    assert replace(looked.after, corners={}, task=task) == looked.before


def test_training_has_the_windows_that_segmenting_has(looked: Looked) -> None:
    """It looks at slices of the cache, not of the scan: the picture of 64x64 may differ in a pixel."""
    task, engine = looked.after.task, TorchEngine(looked.network)
    scans = {case.name: case for case in WIDE.cases(Path("here"))}
    for case in looked.cache.cases[:4]:
        stack = SliceStack(scans[case.name].image(), task)
        frame = looked.cache.frame_of(case)
        places = stack.aimed_at(look(stack, engine)[0]).windows
        expected = [np.mean(side) + part.start for side, part in zip(zip(*places, strict=True), frame, strict=True)]
        assert np.abs(np.subtract(looked.after.corners[case.name], expected)).max() <= 2


class Bright(nn.Module):  # type: ignore[misc]
    """The organ is what is brighter than half."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> UNetOutput:
        return UNetOutput(torch.cat([0.5 - images, images - 0.5], dim=1), [])


FRAMES = [(128, 128), (64, 128), (128, 96)]


def cache_of_boxes(*boxes: tuple[int, int, int, int]) -> tuple[Cache, Resolved]:
    """A case for each of FRAMES, in the middle of 128x128, with a bright box (top, left, bottom, right) in it."""
    entries = [replace(case, frame=frame) for case, frame in zip(cases(3, 1), FRAMES, strict=True)]
    cache = Cache(
        Path("nowhere"),
        "mine",
        CARDIAC,
        tuple(entries),
        {},
        np.zeros((9, 128, 128), np.uint16),
        np.zeros((9, 128, 128), np.uint8),
    )
    for case, (top, left, bottom, right) in zip(entries, boxes, strict=False):
        rows, columns = cache.frame_of(case)
        cache.images[case.first : case.first + 3, rows, columns][:, top:bottom, left:right] = LEVELS
    task = replace(CARDIAC, spacing=1.0, window=(48, 32), first_look=True)
    split = Split(tuple(range(3)), tuple(range(3, 9)), (), (), (), (), "here")
    resolved = Resolved("mine", Path(), Path(), "", split, task, {})
    return cache, resolved


def corners_of(cache: Cache, resolved: Resolved) -> Corners:
    return {name: corner for name, corner, _ in first_look._seen(cache, resolved, Bright())}


def test_corners_are_those_of_a_window_around_the_box_in_pixels_of_the_cache() -> None:
    cache, resolved = cache_of_boxes((40, 60, 60, 80), (0, 0, 20, 20), (100, 70, 128, 96))
    found = corners_of(cache, resolved)
    assert found["p00_frame01"] == (50 - 24, 70 - 16)
    assert found["p01_frame01"] == (32, 0)  # inside the frame, which begins in row 32
    assert found["p02_frame01"] == (128 - 48, 16 + 96 - 32)  # and which begins in column 16


def test_a_scan_in_which_nothing_is_found_has_its_window_at_the_centre_of_its_frame() -> None:
    cache, resolved = cache_of_boxes()
    assert {*corners_of(cache, resolved).values()} == {(64 - 24, 64 - 16)}


def test_an_organ_larger_than_the_window_is_seen_from_its_middle() -> None:
    """`mona segment` covers it with several windows; training has one."""
    cache, resolved = cache_of_boxes((20, 10, 108, 110))
    assert corners_of(cache, resolved)["p00_frame01"] == (64 - 24, 60 - 16)


def test_only_cases_that_are_trained_on_are_looked_at() -> None:
    cache, resolved = cache_of_boxes()
    split = replace(resolved.split, labelled=(1,), unlabelled=(6, 7, 8))
    assert [*corners_of(cache, replace(resolved, split=split))] == ["p00_frame01", "p02_frame01"]


def test_the_least_certainty_is_that_of_the_rarest_training_scans(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache, resolved = cache_of_boxes()
    certain = np.linspace(0.5, 0.99999, 101)
    found = [(f"scan{n}", (0, 0), float(c)) for n, c in enumerate(certain)]
    monkeypatch.setattr(first_look, "_seen", lambda *_: iter(found))
    monkeypatch.setattr(first_look, "train_first_look", lambda *_: tiny_network())
    monkeypatch.setattr(first_look, "labels_for_geometry", lambda *_: (0,))
    config: Any = None
    after, _ = with_first_look(config, resolved, replace(cache, folder=tmp_path))
    assert after.task == replace(resolved.task, least_certain=0.51)  # the 2nd percentile, in three digits
    assert after.corners == {name: (0, 0) for name, *_ in found}


# ---- how it is trained


def rounds(cache: Cache, labelled: tuple[int, ...], training: set[int], patch: pytest.MonkeyPatch) -> list[Any]:
    """What `_learn` is given in each round: slices, organs, and how many of them have labels."""
    given = []

    def learn(_: Any, slices: Any, organs: Any, known: int, first: int) -> Iterator[int]:
        given.append((slices, organs, known, first))
        yield 0

    patch.setattr(first_look, "_learn", learn)
    train_first_look(cache, labelled, training)
    return given


def test_the_second_round_adds_its_own_answers_for_the_scans_it_is_surest_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight scans that show their number; the first is labelled, the last is not trained on, and one has no organ."""
    entries = [replace(case, frame=(64, 64)) for case in cases(8, 1)]
    images = np.repeat(np.arange(8, dtype=np.uint16), 3)[:, None, None] * np.ones((1, 64, 64), np.uint16) * 8000
    labels = np.ones((24, 64, 64), np.uint8)
    cache = Cache(Path("nowhere"), "mine", CARDIAC, tuple(entries), {}, images, labels)
    sure = {0: 0.97, 1: 0.9, 2: 0.5, 3: None, 4: 0.99, 5: 0.8, 6: 0.95}

    def answer(_: Any, slices: Any) -> Any:
        number = round(float(slices.mean()) * LEVELS / 8000)
        found = sure[number]
        return None if found is None else first_look._Answer(slices, np.full_like(slices, number), found)

    monkeypatch.setattr(first_look, "_answer", answer)
    first, second = rounds(cache, (0, 1), set(range(21)), monkeypatch)
    slices, organs, known, start = first
    assert (len(slices), known, start) == (2, 2, 0) and not slices.any() and organs.all()
    slices, organs, known, start = second
    assert (known, start) == (2, first_look.STEPS) and not slices[:2].any()
    numbers = organs[2:, 0, 0].astype(int).tolist()
    # Six answers, one of them for the slice of the labelled scan that has no label in use: all but the worst quarter
    assert numbers == [0, 1, 1, 1, 4, 4, 4, 6, 6, 6]
    assert np.rint(slices[2:, 0, 0] * LEVELS / 8000).astype(int).tolist() == numbers


def test_from_the_second_round_on_half_of_a_batch_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[list[int], list[int]]] = []

    class Still:
        """Slices show their number, and so do organs."""

        def geometry(self, *_: Any) -> Still:
            return self

        def apply(self, images: Tensor, labels: Tensor) -> Any:
            drawn.append((images[:, 0, 0, 0].int().tolist(), labels[:, 0, 0].int().tolist()))
            return type("View", (), {"images": images, "labels": labels})

        def appearance(self, _: Any, images: Tensor, strength: None) -> Tensor:
            return images

    monkeypatch.setattr(first_look, "VIEWS", Still())
    monkeypatch.setattr(first_look, "STEPS", 6)
    numbers = np.arange(10, dtype=np.float32)[:, None, None] * np.ones((1, LOOK, LOOK), np.float32)
    network = tiny_network()
    for _ in first_look._learn(network, numbers[:3], numbers[:3], 3, 0):
        pass
    assert {n for images, _ in drawn for n in images} == {0, 1, 2}
    drawn.clear()
    for _ in first_look._learn(network, numbers, numbers, 3, 6):
        pass
    for images, organs in drawn:
        assert images == organs and len(images) == 16
        assert max(images[:8]) < 3 <= min(images[8:])
    assert {n for images, _ in drawn for n in images[8:]} == {3, 4, 5, 6, 7, 8, 9}


def test_it_is_one_network_whatever_came_before(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "STEPS", 3)
    labelled, training = looked.before.split.labelled, {*looked.before.split.labelled, *looked.before.split.unlabelled}
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(weights_hash(train_first_look(looked.cache, labelled, training).state_dict()))
    assert found[0] == found[1] != weights_hash(looked.network.state_dict())


# ---- who shares it


def test_runs_on_a_cache_share_it_whatever_their_method_and_seed(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_look, "train_first_look", None)
    before = looked.files
    for changes in ({}, {"seed": 7}, {"method": "mona"}, {"method": "unet-f"}):
        found, network = looked.again(**changes)
        assert weights_hash(network.state_dict()) == weights_hash(looked.network.state_dict())
        assert found.corners == looked.after.corners and not network.training
    assert looked.files == before and len(before) == 1


def test_other_labels_have_another_one(looked: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    before, given = looked.files, []
    monkeypatch.setattr(first_look, "train_first_look", lambda *parts: given.append(parts) or tiny_network())
    found, network = looked.again(ratio=0.5, method="unet-f")
    rows = {row for case in looked.cache.cases if case.part == "train" for row in case.rows}
    ((cache, labelled, training),) = given  # unet-f has all labels, and its first look has those of its ratio
    assert cache is looked.cache and training == rows == {*found.split.labelled}
    assert len(looked.before.split.labelled) < len(labelled) < len(rows)
    more = looked.files
    assert len(more) == len(before) + 1
    assert weights_hash(network.state_dict()) != weights_hash(looked.network.state_dict())
    monkeypatch.setattr(first_look, "VERSION", 99)  # a mona that trains it in another way
    looked.again()
    assert len(looked.files) == len(more) + 1


def test_a_task_without_one_leaves_no_file(looked: Looked, untrained: None) -> None:
    before = looked.files
    config = replace(looked.config, window="full")
    resolved = resolve(config, WIDE, Path("here"), looked.cache)
    assert with_first_look(config, resolved, looked.cache) == (resolved, None)
    assert looked.files == before


def test_a_resumed_run_keeps_its_own_and_its_windows(looked: Looked, tmp_path: Path) -> None:
    mine = tiny_network()
    save_first_look(mine, tmp_path)
    kept = replace(looked.before, corners={"patient001_frame01": (3, 4)})
    found, network = with_first_look(looked.config, kept, looked.cache, tmp_path)
    assert found is kept and network is not None and not network.training
    assert weights_hash(network.state_dict()) == weights_hash(mine.state_dict())
    # a new run in a folder that has one does not
    _, network = with_first_look(looked.config, kept, looked.cache)
    assert network is not None and weights_hash(network.state_dict()) == weights_hash(looked.network.state_dict())


def test_a_run_without_one_gets_that_of_the_cache(looked: Looked, tmp_path: Path) -> None:
    found, network = looked.again(tmp_path)
    assert found.corners == looked.after.corners
    assert weights_hash(network.state_dict()) == weights_hash(looked.network.state_dict())


@pytest.mark.parametrize("harm", ["missing", "cut", "other"])
def test_one_that_cannot_be_used_is_named_with_what_to_do(harm: str, tmp_path: Path) -> None:
    path = tmp_path / "first_look.safetensors"
    if harm == "cut":
        save_first_look(tiny_network(), tmp_path)
        path.write_bytes(path.read_bytes()[:1000])
    elif harm == "other":
        checkpoint.save(path, {"weight": torch.zeros(3)}, {})
    with pytest.raises(InputError, match=rf"{path} is missing, damaged or .*`mona train --resume {tmp_path}`"):
        load_first_look(tmp_path)


def test_a_damaged_one_in_the_cache_is_to_be_deleted(looked: Looked, untrained: None) -> None:
    before = looked.files
    looked.again(ratio=0.6)
    (new,) = looked.files - before
    path = looked.cache.folder / "looks" / new
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match=f"{new} is missing, damaged or .*; delete it"):
        looked.again(ratio=0.6)
    path.unlink()
    looked.again(ratio=0.6)
