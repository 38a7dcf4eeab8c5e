"""A bench of small rows: hearts of 32 x 32 pixels, one row of labels alone and two that share a pre-training."""

from __future__ import annotations

from pathlib import Path

from helpers.small_settings import QUICK, SMALL
from helpers.train_commands import mona

STEPS = 16
SETTINGS = {**SMALL, "batch.labelled": "2", "batch.unlabelled": "6", "every.validate": "8", "every.save": "4"}
LIST = """
dataset = "hearts"
preset = "paper"
ratios = [0.4]
steps = {steps}
settings = {{ {settings} }}

[rows.alone]
methods = ["unet-l"]

[rows.ours]
principles = ["", "consistency"]
settings = {{ {ours} }}
"""


def write_list(place: Path, name: str = "small.toml", steps: int = STEPS) -> Path:
    """`mona bench small.toml`"""
    text = LIST.format(steps=steps, settings=_inline({**SETTINGS, "every.log": "2"}), ours=_inline(QUICK))
    (place / name).write_text(text)
    return place / name


def _inline(values: dict[str, str]) -> str:
    return ", ".join(f'"{key}" = "{value}"' for key, value in values.items())


class Ended:
    """A process that has ended."""

    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int | None:
        return self._code

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def start_inside(_: object, words: list[str], log: Path, threads: int) -> Ended:
    """`Here.start` without a process of its own: torch has been imported here."""
    log.parent.mkdir(parents=True, exist_ok=True)
    done = mona(Path.cwd(), *words)
    with log.open("a") as file:
        file.write(done.out + done.err)
    return Ended(done.code)
