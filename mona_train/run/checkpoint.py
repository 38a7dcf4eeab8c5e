"""Checkpoints: one safetensors file with every tensor of a run and, in its metadata, every fact that is no tensor.

Reading one executes no code.  The same state gives the same bytes: safetensors writes several metadata keys in
random order, so there is a single one, a JSON object.  A SHA-256 over all of it finds what safetensors does not:
flipped bits inside tensors and facts.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path

KEY = "mona_checkpoint"
FORMAT = 1


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors (of any layout, sharing memory or not) and facts (JSON values), or leave the old file."""
    body = {"channels_last": [name for name, t in tensors.items() if _is_channels_last(t)], "facts": facts}
    plain = _apart(tensors)
    metadata = {KEY: json.dumps({"format": FORMAT, "sha256": _digest(plain, body), **body})}
    for left in path.parent.glob(f".????????.{glob.escape(path.name)}"):  # of processes killed in mid-save
        left.unlink(missing_ok=True)
    with atomic_path(path) as temporary:
        try:
            save_file(plain, temporary, metadata=metadata)
        except SafetensorError as error:
            raise InputError(f"{path} cannot be written: {error}") from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote: tensors on the CPU, with the layout they had, and facts."""
    if not path.is_file():
        raise InputError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, "pt") as file:
            metadata = (file.metadata() or {}).get(KEY)
            # copies: the file is mapped into memory, and may be replaced while they are in use
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError) as error:  # torch's, on absurd shapes
        raise InputError(f"{path} is no checkpoint, or a damaged one: {str(error).partition(chr(10))[0]}") from error
    if metadata is None:
        raise InputError(f"{path} is a safetensors file, but no checkpoint of a mona run")
    try:
        body = json.loads(metadata)
        version, digest = int(body.pop("format")), body.pop("sha256")
        if version > FORMAT:
            raise InputError(f"{path} was written by a newer mona (format {version}, not {FORMAT}): upgrade this one")
        if digest != _digest(tensors, body):
            raise InputError(f"{path} is damaged: its content is not what was saved")
        for name in body["channels_last"]:
            tensors[name] = tensors[name].contiguous(memory_format=torch.channels_last)
        facts = dict(body["facts"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: its facts cannot be read") from error
    return tensors, facts


def pack(prefix: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A module's state dict, or several nested in a dict, under names that begin with `prefix.`"""
    tensors: dict[str, Tensor] = {}
    for key, value in state.items():
        name = f"{prefix}.{key}"
        for inner, tensor in (pack(name, value) if isinstance(value, Mapping) else {name: value}).items():
            if not isinstance(tensor, Tensor) or inner in tensors:
                raise TypeError(f"{inner}: expected one tensor, found {type(tensor).__name__}")
            tensors[inner] = tensor
    return tensors


def unpack(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict that was packed under `prefix`, or under a longer one: unpack("student.unet", ...)."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def pack_optimiser(prefix: str, state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's state dict as tensors, named prefix.PARAMETER.NAME, and numbers that go into the facts."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, values in state["state"].items():
        tensors |= {f"{prefix}.{parameter}.{k}": v for k, v in values.items() if isinstance(v, Tensor)}
        numbers[str(parameter)] = {k: v for k, v in values.items() if not isinstance(v, Tensor)}
    return tensors, {"state": numbers, "param_groups": [dict(group) for group in state["param_groups"]]}


def unpack_optimiser(prefix: str, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> dict[str, Any]:
    """For `optimizer.load_state_dict`.

    Fused optimisers walk through raw memory and take it that a momentum is laid out as its parameter is: it is, if
    the tensors come from `load` and the parameters have the layout they had when they were saved.
    """
    state = {int(parameter): dict(values) for parameter, values in numbers["state"].items()}
    for name, tensor in unpack(prefix, tensors).items():
        parameter, _, key = name.partition(".")
        state[int(parameter)][key] = tensor
    # JSON made lists of tuples (Adam's betas)
    groups = [
        {k: tuple(v) if isinstance(v, list) and k != "params" else v for k, v in group.items()}
        for group in numbers["param_groups"]
    ]
    return {"state": state, "param_groups": groups}


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, dtypes, shapes and values, in the order of names; memory layout and device do not count."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(t.dtype), list(t.shape)]).encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor], body: Mapping[str, Any]) -> str:
    return hashlib.sha256((weights_hash(tensors) + json.dumps(body)).encode()).hexdigest()


def _is_channels_last(t: Tensor) -> bool:
    return bool(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous, on the CPU, no two in the same memory: what safetensors demands."""
    plain: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        t = tensor.detach().cpu().contiguous()
        place = t.untyped_storage().data_ptr()
        plain[name] = t.clone() if place in seen else t
        seen.add(place)
    return plain
