"""run.toml: as `mona train --resume`, `mona export` and the server's list of runs read it; what is read is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mona_infer.serving.runs import settings
from mona_train.config.schema import Config
from mona_train.config.toml import to_toml
from mona_train.run.folder import CONFIG, read_config, write_config

DICTIONARY = [b"[stages.", b"method = ", b"pretrain = ", b'"none"', b"1e999", b"nan", b"[[", b"{a={a={", b"1979-05-27"]
DICTIONARY += [b"0x7fffffffffffffff", b"'''", b"true", b"seed = -1", b"[train]", b"[model]", b"[data]"]


def seeds() -> Iterator[bytes]:
    yield b'dataset = "acdc"\nmethod = "unet-l"\nseed = 3\n'
    yield to_toml(Config("acdc")).encode()


def read(data: bytes, folder: Path) -> None:
    (folder / CONFIG).write_bytes(data)
    settings(folder)
    config = read_config(folder)
    write_config(config, folder)
    assert read_config(folder) == config
