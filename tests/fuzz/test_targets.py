"""Every fuzzing target on its seeds, on earlier findings, and on damaged seeds: what `make fuzz` does, in seconds."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from fuzz import house
from fuzz.found import FOUND
from fuzz.targets import NAMES, target
from mona_infer.errors import CheckFailed, InputError

DAMAGED = 100  # inputs for each target
NEEDS = {"model": "onnx", "run_toml": "torch", "checkpoint": "safetensors", "dicom": "pydicom"}


@pytest.fixture(params=NAMES)
def reader(request):
    if (package := NEEDS.get(request.param)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return target(request.param)


def test_seeds_are_read(reader, tmp_path):
    """A seed that is refused would leave everything behind the check that refuses it without a test."""
    for number, seed in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            reader.read(seed, folder)
        except InputError as error:
            pytest.fail(f"seed {number}: {error}")


@pytest.mark.parametrize(("name", "what", "data"), FOUND, ids=[f"{name}: {what}" for name, what, _ in FOUND])
def test_findings_stay_fixed(name, what, data, tmp_path):
    if (package := NEEDS.get(name)) and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    house.answer(target(name).read, data, tmp_path)


def test_damaged_seeds_end_in_a_value_or_an_error(reader, tmp_path):
    rng, seeds = np.random.default_rng(0), list(reader.seeds())
    answers = set()
    for number in range(DAMAGED):
        answers.add(house.answer(reader.read, damaged(seeds[number % len(seeds)], rng, reader.DICTIONARY), tmp_path))
    assert "InputError" in answers  # and "a value", but a seal or a digest lets no change through


def damaged(data: bytes, rng: np.random.Generator, dictionary: list[bytes]) -> bytes:
    """A few changes of the kinds that a fuzzer makes."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(1, len(out) + 1))
        match rng.integers(5):
            case 0:
                out[at : at + 1] = bytes([rng.integers(256)])
            case 1:
                out[at:at] = dictionary[rng.integers(len(dictionary))]
            case 2:
                token = dictionary[rng.integers(len(dictionary))]
                out[at : at + len(token)] = token
            case 3:
                del out[at : at + int(rng.integers(1, 30))]
            case 4:
                out[at:at] = out[at : at + int(rng.integers(1, 60))]
    return bytes(out) if rng.random() < 0.9 else bytes(out[: rng.integers(1, len(out) + 1)])


@pytest.mark.parametrize(
    ("breach", "says"),
    [
        (lambda data, folder: 1 / 0, "division by zero"),
        (lambda data, folder: (_ for _ in ()).throw(InputError("")), "not a sentence"),
        (lambda data, folder: (_ for _ in ()).throw(CheckFailed("x")), "exit code 1"),
        (lambda data, folder: np.float32(1e38) * np.float32(1e38), "overflow"),
        (lambda data, folder: bytearray(80 << 20).count(1), "needed 80 MB|needed 79 MB"),
    ],
    ids=["another exception", "no sentence", "another exit code", "a warning", "memory"],
)
def test_a_broken_promise_is_noticed(breach, says, tmp_path, monkeypatch):
    monkeypatch.setattr(house, "MEMORY", 64 << 20)
    with pytest.raises(Exception, match=says):
        house.answer(breach, b"", tmp_path)
