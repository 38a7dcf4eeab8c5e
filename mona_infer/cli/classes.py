"""Reading `--classes 1=RV,2=Myo`."""

from __future__ import annotations

from mona_infer.errors import InputError


def class_names(text: str) -> dict[int, str]:
    names = {}
    for part in filter(None, text.split(",")):
        label, _, name = part.partition("=")
        if not label.strip().isdigit() or not 0 < int(label) < 65536:
            raise InputError(f"expected --classes like 1=RV,2=Myo or 1,2, found {part!r}")
        names[int(label)] = name.strip() or label.strip()
    return names
