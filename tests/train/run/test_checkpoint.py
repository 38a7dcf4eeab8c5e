"""A checkpoint gives back every bit, or says in one sentence that it cannot; a crash leaves the one before."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path
from mona_train.run import checkpoint
from mona_train.run.checkpoint import load, pack, pack_optimiser, save, unpack, unpack_optimiser, weights_hash

FACTS = {"step": 3, "best": None, "dsc": 0.1 + 0.2, "worst": float("-inf"), "name": "ä/\n", "many": [1, {"a": [True]}]}


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit, dtype and shape too; NaN is NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and weights_hash({"": a}) == weights_hash({"": b})


def all_sorts() -> dict[str, Tensor]:
    base = torch.randn(4, 3, 5, 2)
    return {
        "float": base,
        "view": base[1:3],  # the same memory
        "again": base,
        "transposed": base.transpose(0, 3),
        "channels_last": torch.randn(4, 3, 5, 2).to(memory_format=torch.channels_last),
        "parameter": nn.Parameter(torch.randn(2, 3)),
        "expanded": torch.ones(1).expand(7),
        "scalar": torch.tensor(3.0),
        "double": torch.tensor([0.1, float("nan"), float("inf"), -0.0], dtype=torch.float64),
        "bfloat": torch.randn(3, dtype=torch.bfloat16),
        "half": torch.randn(3, dtype=torch.float16),
        "long": torch.tensor(2**62),
        "bytes": torch.get_rng_state(),
        "flags": torch.tensor([True, False]),
        "none of it": torch.zeros(0, 3),
        "none of that": torch.zeros(0),
    }


def test_every_sort_of_tensor_and_fact_comes_back(tmp_path: Path) -> None:
    given = all_sorts()
    save(tmp_path / "new" / "a.safetensors", given, FACTS)
    tensors, facts = load(tmp_path / "new" / "a.safetensors")
    assert facts == FACTS and list(facts) == list(FACTS)
    assert set(tensors) == set(given)
    for name, tensor in given.items():
        assert same(tensors[name], tensor), name
    assert tensors["channels_last"].stride() == given["channels_last"].stride()
    assert not any(t.requires_grad for t in tensors.values())


def test_the_same_state_is_the_same_file(tmp_path: Path) -> None:
    for n in range(20):
        save(tmp_path / str(n), {name: torch.arange(3.0) for name in "abc"}, FACTS)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_loaded_tensors_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save(path, {"w": torch.arange(10_000.0)}, {})
    tensors, _ = load(path)
    path.write_bytes(b"")  # in place: a mapped file would go with it
    tensors["w"] += 1
    assert torch.equal(tensors["w"], torch.arange(1.0, 10_001))


def test_a_crash_in_mid_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.safetensors"
    save(path, {"w": torch.zeros(3)}, {"step": 1})
    before = path.read_bytes()

    def half(tensors: Any, file: Path, metadata: Any) -> None:
        save_file(tensors, file, metadata)
        os.truncate(file, 50)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises(KeyboardInterrupt):
        save(path, {"w": torch.ones(3)}, {"step": 2})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_what_a_kill_in_mid_save_leaves_is_swept_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        raise KeyboardInterrupt
    temporary.write_bytes(b"half")
    save(tmp_path / "best.safetensors", {}, {})
    assert temporary.exists()  # that of another name may be at work
    save(path, {"w": torch.ones(3)}, {"step": 2})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best.safetensors", "last.safetensors"]


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="is a folder"):
        save(tmp_path, {}, {})
    with pytest.raises(TypeError):  # a mistake of the programmer
        save(tmp_path / "a", {}, {"w": torch.ones(1)})

    def full_disk(*_: Any, **__: Any) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(InputError, match="a cannot be written: No space left"):
        save(tmp_path / "a", {"w": torch.ones(1)}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.full)])
def test_no_flipped_bit_and_no_missing_byte_goes_unnoticed(tmp_path: Path, stride: int) -> None:
    """Bits all over a small file: refused, or harmless (1e-05 and 1E-05 are the same fact)."""
    path, damaged = tmp_path / "a", tmp_path / "b"
    tensors = {"w": torch.arange(3.0), "c": torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last)}
    facts = {"lr": 1e-05, "n": 12, "s": "é"}
    save(path, tensors, facts)
    good = path.read_bytes()
    harmless = 0
    for position in range(0, 8 * len(good), stride):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << position % 8
        damaged.write_bytes(bad)
        try:
            found, read = load(damaged)
        except InputError as error:
            assert str(damaged) in str(error)
        else:
            assert read == facts and weights_hash(found) == weights_hash(tensors)
            harmless += 1
    assert harmless < 5
    for size in range(0, len(good), stride):
        damaged.write_bytes(good[:size])
        with pytest.raises(InputError, match=str(damaged)):
            load(damaged)
    damaged.write_bytes(good + b"\0")
    with pytest.raises(InputError, match=str(damaged)):
        load(damaged)


class Bomb:
    def __reduce__(self) -> Any:
        return os._exit, (77,)


@pytest.mark.parametrize("kind", ["pickle", "torch", "torch old", "text", "empty", "zeros", "absurd"])
def test_foreign_files_are_refused_and_never_run(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "last.safetensors"
    match kind:
        case "pickle":
            path.write_bytes(pickle.dumps(Bomb()))
        case "torch" | "torch old":
            torch.save({"w": torch.ones(3), "b": Bomb()}, path, _use_new_zipfile_serialization=kind == "torch")
        case "text":
            path.write_text("weights\n" * 50)
        case "empty":
            path.write_bytes(b"")
        case "zeros":
            path.write_bytes(bytes(1000))
        case "absurd":  # torch refuses this shape, in thirty lines
            header = json.dumps({"w": {"dtype": "U8", "shape": [2**64 - 1, 0], "data_offsets": [0, 0]}}).encode()
            path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(path) in str(caught.value) and "no checkpoint" in str(caught.value) and "\n" not in str(caught.value)


def test_other_safetensors_files_and_newer_formats_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_file({"w": torch.ones(3)}, path)
    with pytest.raises(InputError, match="no checkpoint of a mona run"):
        load(path)
    save_file({"w": torch.ones(3)}, path, {checkpoint.KEY: json.dumps({"format": 2, "sha256": "", "new": 1})})
    with pytest.raises(InputError, match="written by a newer mona"):
        load(path)
    for metadata in (
        "[]",
        "{}",
        "3",
        "nonsense",
        "[" * 10**5,
        '{"format": "x", "sha256": ""}',
        '{"format": 1, "sha256": "0"}',
    ):
        save_file({"w": torch.ones(3)}, path, {checkpoint.KEY: metadata})
        with pytest.raises(InputError, match="is damaged"):
            load(path)
    for missing in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="there is no checkpoint"):
            load(missing)


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LeakyReLU(), nn.Conv2d(8, 4, 1))
    return net.to(memory_format=torch.channels_last)


def test_module_states_go_under_a_prefix_and_come_back() -> None:
    networks = nn.ModuleDict({"unet": network(0), "head": nn.Linear(2, 2)})
    tensors = {**pack("student", networks.state_dict()), **pack("students", {"w": torch.zeros(1)})}
    assert "student.unet.1.num_batches_tracked" in tensors
    other = nn.ModuleDict({"unet": network(1), "head": nn.Linear(2, 2)})
    other.load_state_dict(unpack("student", tensors))
    assert weights_hash(other.state_dict()) == weights_hash(networks.state_dict())
    assert set(unpack("student.unet", tensors)) == set(networks["unet"].state_dict())
    nested = pack("all", {"unet": networks["unet"].state_dict(), "empty": {}})
    assert set(unpack("all.unet", nested)) == set(networks["unet"].state_dict())
    assert unpack("nothing", tensors) == {}
    for bad in ({"a": 3}, {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}):
        with pytest.raises(TypeError, match=r"p\.a"):
            pack("p", bad)


def sgd(net: nn.Module, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4, fused=fused)


def adamw(net: nn.Module, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.01, fused=fused)


def plain(net: nn.Module, fused: bool) -> torch.optim.Optimizer:
    groups = [{"params": [p], "lr": 0.1 * (n + 1)} for n, p in enumerate(net.parameters())]
    return torch.optim.SGD(groups, fused=fused)


def steps(net: nn.Module, optimiser: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        images = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(number))
        optimiser.zero_grad()
        net(images.to(memory_format=torch.channels_last)).square().mean().backward()
        optimiser.step()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [sgd, adamw, plain])
@pytest.mark.parametrize("before", [0, 3])
def test_a_resumed_optimiser_takes_the_same_steps(tmp_path: Path, kind: Any, fused: bool, before: int) -> None:
    """Fused optimisers walk through raw memory: a momentum laid out otherwise than its parameter is garbage."""
    net = network(0)
    optimiser = kind(net, fused)
    steps(net, optimiser, range(before))
    state = copy.deepcopy(optimiser.state_dict())
    tensors, numbers = pack_optimiser("optimiser", optimiser.state_dict())
    others, _ = pack_optimiser("optimiser2", optimiser.state_dict())  # a prefix of a prefix
    save(tmp_path / "a", {**pack("net", net.state_dict()), **tensors, **others}, {"numbers": numbers})

    found, facts = load(tmp_path / "a")
    again = network(1)
    resumed = kind(again, fused)
    again.load_state_dict(unpack("net", found))
    unpacked = unpack_optimiser("optimiser", found, facts["numbers"])
    assert unpacked["param_groups"] == state["param_groups"]
    assert unpacked["state"].keys() == state["state"].keys()
    for parameter, values in state["state"].items():
        assert unpacked["state"][parameter].keys() == values.keys()
        for name, value in values.items():
            ours = unpacked["state"][parameter][name]
            assert same(ours, value) if isinstance(value, Tensor) else ours == value, name
    resumed.load_state_dict(unpacked)

    steps(net, optimiser, range(before, before + 3))
    steps(again, resumed, range(before, before + 3))
    assert weights_hash(again.state_dict()) == weights_hash(net.state_dict())
    assert weights_hash(pack_optimiser("o", resumed.state_dict())[0]) == weights_hash(
        pack_optimiser("o", optimiser.state_dict())[0]
    )


def test_the_hash_sees_names_types_shapes_and_values_only() -> None:
    given = {"b": torch.zeros(4, 2, 3, 3), "a": torch.arange(3)}
    expected = weights_hash(given)
    laid_out = given["b"].to(memory_format=torch.channels_last)
    assert weights_hash({"a": given["a"], "b": laid_out}) == expected
    others = [
        {"a": given["b"], "b": given["a"]},
        {"b": given["b"]},
        {**given, "a": torch.arange(3, dtype=torch.int32)},
        {**given, "a": torch.tensor([0, 1, 3])},
        {**given, "b": torch.zeros(2, 4, 3, 3)},
        {**given, "b": -given["b"]},  # minus zero is another number
        {**given, "c": torch.zeros(0)},
    ]
    assert len({expected, *map(weights_hash, others)}) == len(others) + 1
    assert weights_hash({"w": torch.tensor([1.0])}) == (
        hashlib.sha256(b'["w", "torch.float32", [1]]\x00\x00\x80?').hexdigest()
    )


def test_a_checkpoint_has_the_mode_of_every_other_file(tmp_path: Path) -> None:
    """safetensors makes files that only their owner may read; a group that shares runs could not export them."""
    before = os.umask(0o027)
    try:
        checkpoint.save(tmp_path / "last.safetensors", {"a": torch.ones(2)}, {})
        (tmp_path / "other").write_text("")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"last.safetensors": 0o640, "other": 0o640}
