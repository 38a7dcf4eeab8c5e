"""The phantom as a dataset."""

from pathlib import Path

from mona_train.data.adapters import adapter_named, locate
from mona_train.phantom import heart, phantom


def test_phantom_is_the_embedded_one():
    adapter, folder = locate("phantom")
    found = adapter.cases(folder)
    assert len(found) == 72 and len({case.name for case in found}) == 72 and all(case.files == () for case in found)
    case, wanted = found[1], heart(1, "ES")
    assert (case.name, case.patient, case.part) == (wanted.name, wanted.patient, wanted.split)
    assert case.image().voxels.tobytes() == wanted.image.voxels.tobytes()
    assert case.label().voxels.tobytes() == wanted.label.voxels.tobytes()


def test_phantom_parts_are_those_of_its_split():
    import inspect

    sizes = {name: p.default for name, p in inspect.signature(phantom).parameters.items() if name != "seed"}
    parts = {}
    for case in adapter_named("phantom").cases(Path("anything")):
        parts.setdefault(case.part, set()).add(case.patient)
    assert {part: len(patients) for part, patients in parts.items()} == sizes
    assert max(parts["train"]) < min(parts["val"]) < min(parts["test"])
