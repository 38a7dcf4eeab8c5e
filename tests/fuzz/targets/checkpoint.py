"""A checkpoint: the safetensors header, and mona's facts in it under a digest that is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save

from mona_train.run import checkpoint

FILE, HEADER, FACTS = range(3)
TENSORS = {"student.weight": torch.arange(6.0).reshape(1, 2, 1, 3), "step": torch.tensor(7)}
NUMBERS = save(TENSORS)[-32:]
DICTIONARY = [b'"dtype":"F32"', b'"shape":[', b'"data_offsets":[', b'"__metadata__":{', b'"channels_last"', b"BF16"]
DICTIONARY += [b'"facts"', b'"format"', b"F64", b"18446744073709551615", b"null", b"-1", b"1e999", b"[[[[[[[["]


def seeds() -> Iterator[bytes]:
    body = {"channels_last": ["student.weight"], "facts": {"step": 7, "task": {"name": "heart"}}}
    yield bytes([FACTS]) + json.dumps(body).encode()
    content = _file(body)
    yield bytes([FILE]) + content
    size = int.from_bytes(content[:8], "little")
    yield bytes([HEADER]) + content[8 : 8 + size]


def read(data: bytes, folder: Path) -> None:
    kind, content = data[0] % 3 if data else FILE, data[1:]
    if kind == HEADER:
        content = len(content).to_bytes(8, "little") + content + NUMBERS
    if kind == FACTS:
        try:
            content = _file(json.loads(content))
        except (ValueError, RecursionError, TypeError):  # no JSON, so nothing that can be signed
            return
    path = folder / "last.safetensors"
    path.write_bytes(content)
    checkpoint.load(path)


def _file(body: object) -> bytes:
    facts = dict(body) if isinstance(body, dict) else {"facts": body}
    facts = {key: value for key, value in facts.items() if key not in ("format", "sha256")}
    digest = checkpoint._digest(TENSORS, facts)
    return save(TENSORS, {checkpoint.KEY: json.dumps({"format": checkpoint.FORMAT, "sha256": digest, **facts})})
