"""The cache of slices that keep their shape: each in the middle of what holds the largest, its labels as soft maps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mona_infer.geometry.stack import SliceStack
from mona_infer.task import CARDIAC
from mona_infer.volume import Volume
from mona_kernels import native
from mona_train.data import prepare as module
from mona_train.data.cache import Cache, default_folder, read_manifest
from mona_train.data.case import Adapter, Case
from mona_train.data.fingerprint import fingerprint
from mona_train.data.prepare import STEPS, prepare

TASK = replace(CARDIAC, name="mine", size=(48, 48))
# Rows, columns and spacing in mm.  The median long side is 80 mm in 60 pixels: 40 pixels are 2 mm each.
SCANS = [((80, 60), 1.0), ((40, 60), 1.5), ((44, 40), 1.0)]


def volumes(n: int) -> tuple[Volume, Volume]:
    (rows, columns), spacing = SCANS[n]
    rng = np.random.default_rng(n)
    image = rng.integers(0, 900, (columns, rows, 3 + n)).astype(np.int16)
    label = np.zeros(image.shape, np.uint8)
    label[columns // 4 : -(columns // 4), rows // 4 : -(rows // 4)] = rng.integers(0, 4, (1, 1, 3 + n))
    affine = np.diag([-spacing, -spacing, 9.0, 1.0])
    affine[:3, 3] = 4, 5, 6
    return Volume(image, affine), Volume(label, affine)


def cases(_: Path) -> list[Case]:
    """The last one has no label."""
    return [
        Case(f"s{n}", f"s{n}", (), lambda n=n: volumes(n)[0], None if n == 2 else lambda n=n: volumes(n)[1])
        for n in range(len(SCANS))
    ]


MM = Adapter("mine", "Mine", lambda _: True, lambda _: TASK, cases, "nowhere", "none", "s0.nii.gz")
PIXELS = replace(MM, ruler="pixels")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def without(arrays: NDArray[np.uint16], frame: tuple[slice, slice]) -> NDArray[np.uint16]:
    """Zeros in the frame."""
    rest = np.array(arrays)
    rest[:, *frame] = 0
    return rest


@pytest.mark.parametrize(
    ("adapter", "frames", "size"),
    [(MM, [(40, 30), (30, 45), (22, 20)], (40, 45)), (PIXELS, [(40, 30), (27, 40), (40, 36)], (40, 40))],
    ids=["mm", "pixels"],
)
def test_frames_of_any_size_are_in_the_middle(
    adapter: Adapter, frames: list[tuple[int, int]], size: tuple[int, int], tmp_path: Path
) -> None:
    cache = prepare(adapter, tmp_path, tmp_path / "cache", pixels=40)
    assert cache.task.spacing == (2.0 if adapter is MM else None)
    assert cache.task.long_side == (None if adapter is MM else 40)
    assert [case.frame for case in cache.cases] == frames
    assert cache.images.shape == (3 + 4 + 5, *size) and cache.labels.shape == (3 + 4, *size)
    for n, (case, (rows, columns)) in enumerate(zip(cache.cases, frames, strict=True)):
        image, label = volumes(n)
        place = cache.frame_of(case)
        assert (place[0].start, place[1].start) == ((size[0] - rows) // 2, (size[1] - columns) // 2)
        stack = SliceStack(image, cache.task)
        given = cache.images[list(case.rows)]
        np.testing.assert_allclose(given[:, *place] / STEPS, stack.read_whole(0, len(stack)), atol=0.5 / STEPS + 1e-7)
        assert given.any() and not without(given, place).any()
        if case.first_label is None:
            continue
        labels = cache.labels[list(case.label_rows.values())]
        view = np.ascontiguousarray(stack.slicing.view(label.voxels))
        np.testing.assert_array_equal(labels[:, *place], native.soft_labels(view, (rows, columns), 4))
        assert labels.any() and not without(labels, place).any()


def test_labels_are_what_covers_most_of_a_pixel(tmp_path: Path) -> None:
    """Four pixels become one: of 1, 1, 2 and 1 that is 1, whichever of them is nearest."""
    blocks = np.random.default_rng(5).integers(0, 4, (2, 20, 20))  # slices rows columns
    fine = np.repeat(np.repeat(blocks, 2, axis=1), 2, axis=2)
    fine[0, ::2, ::2] = (fine[0, ::2, ::2] + 1) % 4  # one of each four is of another class
    fine[1, 1::2, 1::2] = (fine[1, 1::2, 1::2] + 1) % 4
    fine[:, 1::2, ::2][:, 3:9] = (fine[:, 1::2, ::2][:, 3:9] + 2) % 4  # here two are, of different ones
    voxels = fine.astype(np.uint8).transpose(2, 1, 0)
    affine = np.diag([-1.0, -1.0, 9.0, 1.0])
    case = Case("s", "s", (), lambda: Volume(voxels.astype(np.int16), affine), lambda: Volume(voxels, affine))
    cache = prepare(replace(MM, cases=lambda _: [case]), tmp_path, tmp_path / "cache", pixels=20)
    assert cache.task.spacing == 2.0
    np.testing.assert_array_equal(cache.labels, blocks)
    assert cache.cases[0].voxels == tuple(np.bincount(voxels.ravel(), minlength=4))  # counted as scanned


def test_it_is_used_again_and_made_again_when_the_scale_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    first = prepare(MM, tmp_path, folder, pixels=40)
    before = contents(folder)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_shard", None)  # nothing is read again
        patched.setattr(module, "at_one_scale", None)
        again = prepare(MM, tmp_path, folder, pixels=40)
    assert contents(folder) == before and again.geometry == first.geometry
    (folder / "looks").mkdir()
    assert capsys.readouterr().out.splitlines()[-1] == f"using {folder}, which is already prepared"
    other = prepare(MM, tmp_path, folder, pixels=20)
    assert capsys.readouterr().out.startswith(f"preparing {folder} again: the classes, intensities or slice size have")
    assert other.task.spacing == 4.0 and other.images.shape[1:] == (20, 22)
    assert not (folder / "looks").exists()  # they are of other slices
    squeezed = prepare(MM, tmp_path, folder)
    assert squeezed.task == TASK and squeezed.images.shape[1:] == (48, 48)
    assert contents(prepare(MM, tmp_path, folder, pixels=40).folder) == before


def test_the_manifest_says_what_was_asked_and_what_became_of_it(tmp_path: Path) -> None:
    cache = prepare(PIXELS, tmp_path, tmp_path / "cache", pixels=40)
    facts = json.loads((cache.folder / "manifest.json").read_text())
    assert list(facts) == ["format", "dataset", "asked", "geometry", "task", "cases", "sources"]
    assert facts["format"] == 2 and facts["asked"] == {"task": json.loads(TASK.to_json()), "pixels": 40}
    assert (
        facts["geometry"]
        == cache.geometry
        == (
            "the long side of every slice becomes 40 pixels, its shape is kept "
            "(mine does not always have a spacing; the typical long side is 60 pixels)"
        )
    )
    assert facts["task"]["long_side"] == 40
    assert [case["frame"] for case in facts["cases"]] == [[40, 30], [27, 40], [40, 36]]
    assert Cache.open(cache.folder).cases == cache.cases
    (cache.folder / "manifest.json").write_text(json.dumps(facts | {"format": 1}))
    assert read_manifest(cache.folder) is None  # a cache of an older version is made again
    assert prepare(PIXELS, tmp_path, cache.folder, pixels=40).cases == cache.cases


def test_squeezed_slices_fill_the_cache_and_it_says_so(tmp_path: Path) -> None:
    cache = prepare(MM, tmp_path, tmp_path / "cache", (32, 64))
    assert cache.geometry == "slices are squeezed to 32x64"
    assert {case.frame for case in cache.cases} == {None}
    assert cache.frame_of(cache.cases[0]) == (slice(0, 32), slice(0, 64))
    assert fingerprint(cache)["geometry"] == "slices are squeezed to 32x64"


def test_info_tells_the_scale_and_the_window_that_a_run_would_have(tmp_path: Path) -> None:
    cache = prepare(MM, tmp_path, tmp_path / "cache", pixels=40)
    said = fingerprint(cache)["geometry"]
    assert said.startswith("slices get a spacing of 2 mm, their shape is kept")
    assert said.endswith(
        "; organs of labelled patients are up to 23 pixels wide: the network sees whole slices, in 48x48"
    )


def test_a_class_that_the_scale_loses_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def dotted() -> Volume:
        label = volumes(0)[1]
        label.voxels[:] = 0
        label.voxels[30, 30, 1] = 2
        return label

    adapter = replace(MM, cases=lambda _: [replace(cases(tmp_path)[0], label=dotted)])
    prepare(adapter, tmp_path, tmp_path / "cache", pixels=20)
    assert capsys.readouterr().err.strip() == (
        "warning: Myo is too small for slices at this scale and vanishes in 1 volumes: s0"
    )


def test_scales_and_sizes_have_caches_of_their_own_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = [default_folder("mine", tmp_path, (32, 64)), default_folder("mine", tmp_path, (32, 64), 40)]
    assert list(map(str, places)) == ["cache/mine-32x64", "cache/mine-40"]
    prepare(MM, tmp_path, places[0], (32, 64))
    capsys.readouterr()
    prepare(MM, tmp_path, places[1], pixels=40)
    assert capsys.readouterr().out == "preparing cache/mine-40: cache/mine-32x64 has slices of another size\n"
