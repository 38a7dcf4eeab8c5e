"""A model file: its protocol buffer and its facts, under a seal that is right, so that both are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mona_infer.models.file import FACTS, METADATA, SEAL, SEAL_BYTES, entry, opened

GRAPH, JSON, AS_IT_IS = range(3)
DICTIONARY = [b"\x72", b"\x0a\x04mona", b"\x12", b"location", b"ai.onnx", b"\xff\xff\xff\xff\x0f", b'"first_look": ']
DICTIONARY += [b'"format": 1', b'"classes": ', b'"size": ', b'"spacing": ', b"null", b"1e999", b"-1", b"[[[[[[[[["]


@cache
def _graph() -> bytes:
    from helpers import models

    return models.graph().SerializeToString()


@cache
def _models() -> tuple[bytes, ...]:
    from dataclasses import replace

    from helpers import models

    found = [models.model_bytes()]
    task = replace(models.TASK, first_look=True, spacing=1.5, window=(16, 16))
    found.append(models.model_bytes(task))
    return tuple(found)


def seeds() -> Iterator[bytes]:
    for content in _models():
        yield bytes([AS_IT_IS]) + content
        yield bytes([GRAPH]) + content[:-SEAL_BYTES]
        body = content[:-SEAL_BYTES]
        facts = body[body.rindex(FACTS) + len(FACTS) :]
        yield bytes([JSON]) + json.dumps(json.loads(facts[facts.index(b"{") :])).encode()


def read(data: bytes, folder: Path) -> None:
    kind, content = data[0] % 3 if data else GRAPH, data[1:]
    if kind == JSON:
        content = _graph() + entry(FACTS, content, METADATA)
    if kind != AS_IT_IS:
        content += entry(SEAL, hashlib.sha256(content).hexdigest().encode(), METADATA)
    model = opened("model.onnx", content)
    assert model.task.input_size
    json.dumps(model.facts)
