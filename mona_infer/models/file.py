"""The model file: ONNX with its Task and its origin, sealed as a whole.

    ONNX graph and weights | metadata "mona": one JSON object | metadata "mona_sha256": 64 hexadecimal digits

Fields of a protocol buffer may come in any order and a message may be written in pieces, so both entries are simply
appended to the exporter's bytes, and any program that reads ONNX finds them as metadata.  The seal is therefore always
the last 81 bytes of the file: the SHA-256 of every byte before them.  It covers every bit, and checking it takes only a
hash, before any parser sees the file.  (A digest in the middle would have to be found by parsing first.)  It detects
damage and careless edits; it is not a signature, so the rest is still read as untrusted input.

The metadata are read by `mona_infer.models.protobuf`, not by a runtime: they are needed where no runtime is installed
(to choose an engine, or to say what is missing), and before any runtime sees the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.atomic import atomic_path
from mona_infer.models.bundled import card_of
from mona_infer.models.card import Card
from mona_infer.models.protobuf import entry, fields, parts
from mona_infer.task import LOOK, Task

FORMAT = 1
FACTS, SEAL = b"mona", b"mona_sha256"
METADATA = 14  # ModelProto.metadata_props
SEAL_BYTES = len(entry(SEAL, b"0" * 64, METADATA))
LARGEST = 1 << 30  # bytes; the paper's U-Net takes 7 MB
# Standard operators, and the one ONNX Runtime domain that its quantiser uses.
DOMAINS = {"", "ai.onnx", "com.microsoft"}
FIRST_LOOK = "first_look"  # the fact that holds a whole sealed model, in base64


@dataclass(frozen=True, eq=False)
class Model:
    """A sealed model, held in memory, so that the runtime loads exactly the bytes that were checked."""

    path: Path
    content: bytes
    seal: str
    task: Task
    facts: dict[str, Any]  # precision, metrics, licence, data, code, run, certificate: what was known at export
    first_look: Model | None = None  # the small model that finds the organ, if the Task has a first look
    card: Card | None = None  # of a model that comes with mona

    @property
    def label(self) -> str:
        """What it is called where a user reads of it."""
        return str(self.path) if self.card is None else self.card.name

    @property
    def precision(self) -> str:
        return str(self.facts.get("precision", "fp32"))


def seal(onnx: bytes, facts: dict[str, Any]) -> bytes:
    """The content of a model file.  `facts` must have a "task"; the same arguments give the same bytes."""
    text = json.dumps({"format": FORMAT, **facts}, sort_keys=True, ensure_ascii=False)
    body = onnx + entry(FACTS, text.encode(), METADATA)
    return body + entry(SEAL, hashlib.sha256(body).hexdigest().encode(), METADATA)


def write_model(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def read_model(path: Path | str) -> Model:
    """Read a model and check its seal; a file that is not exactly what `mona export` wrote is refused."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InputError(f"{path} is {size / 1e9:.1f} GB; a mona model is at most {LARGEST / 1e9:.1f} GB")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    model = opened(path, content)
    return replace(model, card=card_of(path, model.seal))


def opened(path: Path | str, content: bytes) -> Model:
    """The same for bytes already in memory; `path` is the name used in messages."""
    path = Path(path)
    body, end = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
    digest = hashlib.sha256(body).hexdigest()
    if end[:-64] != entry(SEAL, b"0" * 64, METADATA)[:-64]:
        raise InputError(f"{path} is not a mona model, or is truncated: it does not end in a seal")
    if end[-64:] != digest.encode():
        raise InputError(f"{path} is damaged or was changed after export: its content does not match its seal")
    try:
        facts = _facts(memoryview(body))
        _self_contained(memoryview(body))
        if int(facts["format"]) > FORMAT:
            raise InputError(f"{path} was written by a newer mona (format {facts['format']}); upgrade this one")
        task = Task.from_json(json.dumps(facts["task"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is sealed but is not a mona model ({error})") from error
    first_look = _first_look(path, task, facts.pop(FIRST_LOOK, None))
    facts = {k: v for k, v in facts.items() if k not in ("format", "task")}
    return Model(path, content, digest, task, facts, first_look)


def packed(first_look: bytes) -> str:
    """A model file as a fact of the model that it is the first look of."""
    return base64.b64encode(first_look).decode()


def _first_look(path: Path, task: Task, fact: Any) -> Model | None:
    if fact is None and not task.first_look:
        return None
    if not task.first_look:
        raise InputError(f"{path} is sealed but has a first look that its Task does not use")
    if not isinstance(fact, str):
        raise InputError(f"{path} is sealed but lacks the small model for the first look that its Task needs")
    try:
        content = base64.b64decode(fact, validate=True)
    except ValueError as error:
        raise InputError(f"{path} is sealed but its first look is not base64 ({error})") from error
    model = opened(path.with_name(f"{path.name}:first-look"), content)
    size, classes = (LOOK, LOOK), len(model.task.classes)
    if not model.task.squeezed or model.task.input_size != size or classes != 2:
        found = f"{classes} classes at {model.task.input_size[0]}x{model.task.input_size[1]}"
        raise InputError(f"{model.path}: a first look must have 2 classes at {LOOK}x{LOOK}, found {found}")
    return model


def _facts(body: memoryview) -> dict[str, Any]:
    found = []
    for pair in parts(body, METADATA):
        strings = dict(fields(pair))
        if _bytes(strings.get(1)) == FACTS:
            found.append(json.loads(_bytes(strings.get(2))))
    if len(found) != 1 or not isinstance(found[0], dict):  # with two, a runtime might use the other one
        raise ValueError(f"it has {len(found)} descriptions instead of one")
    return dict(found[0])


def _self_contained(body: memoryview) -> None:
    """Refuse weights in other files (or at memory addresses), which the seal does not cover, and unknown operators.

    ModelProto: graph 7, opset_import 8 (domain 1), functions 25.
    """
    if any(True for _ in parts(body, 25)):
        raise ValueError("it defines its own functions")
    for opset in parts(body, 8):
        domain = "".join(str(name, "utf-8") for name in parts(opset, 1))
        if domain not in DOMAINS:
            raise ValueError(f"it needs operators from {domain!r}")
    graphs = list(parts(body, 7))
    if len(graphs) != 1:
        raise ValueError(f"it has {len(graphs)} graphs instead of one")
    for tensor in _tensors(graphs[0]):
        for number, value in fields(tensor):
            if number == 13 or (number == 14 and value != 0):  # TensorProto: external_data, data_location
                raise ValueError("it stores weights outside the file")


def _tensors(graph: memoryview) -> Iterator[memoryview]:
    """GraphProto: node 1 (attribute 5: tensor 5, graph 6, tensors 10, graphs 11), initializer 5; nothing else."""
    for number, value in fields(graph):
        if number == 5 and isinstance(value, memoryview):
            yield value
        elif number == 15:
            raise ValueError("it has sparse weights")
        elif number == 1 and isinstance(value, memoryview):
            for attribute in parts(value, 5):
                for part, inside in fields(attribute):
                    if part in (6, 11):
                        raise ValueError("it has branches or loops")
                    if part in (5, 10) and isinstance(inside, memoryview):
                        yield inside


def _bytes(value: int | memoryview | None) -> bytes:
    return bytes(value) if isinstance(value, memoryview) else b""
