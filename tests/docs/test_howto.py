"""The how-to pages do what they say: their code runs as printed, and is as many files and lines as they claim."""

from __future__ import annotations

import ctypes
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from helpers.doc_pages import ROOT, blocks
from helpers.models import scan, write

HOWTO = ROOT / "docs" / "howto"
THICK = np.diag([1.5, 1.5, 10.0, 1.0])


def files(page: str) -> dict[str, str]:
    """What a page's Python and C++ blocks say, by the file named in their first line (which is not part of it)."""
    found = {}
    for block in blocks(HOWTO / page, "python", "cpp"):
        first, _, rest = block.text.partition("\n")
        found[first.strip("#/ ")] = rest
    return found


def module(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import `text` as if it lay in the package, and let registries that list the package's folder see it."""
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, made)
    spec.loader.exec_module(made)
    listed, package = pkgutil.iter_modules, Path(*name.split(".")[:-1]).parts

    def with_it(paths: Any = None, prefix: str = "") -> Any:
        yield from listed(paths, prefix)
        if paths and Path(next(iter(paths))).parts[-len(package) :] == package:
            yield pkgutil.ModuleInfo(None, name.rpartition(".")[2], False)  # type: ignore[arg-type]

    monkeypatch.setattr(pkgutil, "iter_modules", with_it)
    return made


@pytest.mark.parametrize("page", ["dataset.md", "method.md", "engine.md"])
def test_one_file_of_as_many_lines_as_the_page_says(page: str) -> None:
    ((path, text),) = files(page).items()
    claimed = re.search(r"one new file of (\d+) lines", (HOWTO / page).read_text())
    assert claimed and int(claimed[1]) == text.count("\n"), f"{path} has {text.count(chr(10))} lines"
    assert (ROOT / path).parent.is_dir() and not (ROOT / path).exists()


def test_an_adapter_prepares_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mona_train.data.adapters import locate
    from mona_train.data.prepare import prepare

    rng = np.random.default_rng(0)
    for folder in ("scans", "masks"):
        (tmp_path / "raw" / folder).mkdir(parents=True)
    for patient in ("a", "b"):
        voxels = rng.integers(0, 99, (12, 10, 5)).astype(np.int16)
        nib.save(nib.Nifti1Image(voxels, THICK), tmp_path / "raw/scans" / f"{patient}.nii.gz")
    nib.save(nib.Nifti1Image((voxels > 50).astype(np.uint8), THICK), tmp_path / "raw/masks/b.nii.gz")
    module("mona_train.data.adapters.kidney", *files("dataset.md").values(), tmp_path, monkeypatch)
    adapter, folder = locate("kidney", tmp_path / "raw")
    cache = prepare(adapter, folder, tmp_path / "cache")
    assert [case.first_label is None for case in cache.cases] == [True, False]
    assert cache.labels.max() == 1


def test_a_method_trains_and_takes_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from helpers.small_runs import small_config, train, trainer_of

    from mona_train.methods import registry

    monkeypatch.setattr(registry, "methods", registry.methods.__wrapped__)  # look again, and remember nothing
    module("mona_train.methods.entropy", *files("method.md").values(), tmp_path, monkeypatch)
    trainer = trainer_of(small_config("entropy", {"entropy.weight": "0.5"}, steps=4))
    train(trainer, until=1)
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    train(trainer)
    assert trainer.config.stages["entropy"].weight == 0.5
    assert any(not torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())


def test_an_engine_gives_the_masks_of_onnx_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mona_infer import Segmenter, read_volume
    from mona_infer.engines import base

    base.engines.cache_clear()
    module("mona_infer.engines.reference", *files("engine.md").values(), tmp_path, monkeypatch)
    model = write(tmp_path / "model.onnx")
    nib.save(nib.Nifti1Image(scan(), THICK), tmp_path / "scan.nii.gz")
    volume = read_volume(tmp_path / "scan.nii.gz")
    try:
        ours, peer = Segmenter(model, engine="reference"), Segmenter(model, engine="cpu")
        assert ours.engine.description.startswith("ONNX reference evaluator")
        assert np.array_equal(ours(volume).voxels, peer(volume).voxels)
    finally:
        base.engines.cache_clear()


def compiled(header: str, folder: Path) -> SimpleNamespace:
    """The printed C++ as a stand-in for `mona_kernels._training`, which the page would compile it into."""
    import torch

    (folder / "entropy.hpp").write_text(header)
    shim = '#include "entropy.hpp"\n' + "".join(
        f'extern "C" double entropy_{t}(const {t}* z, {t}* g, int64_t n, int64_t c, int threads)'
        "{ return mona::entropy(z, g, n, c, threads); }\n"
        for t in ("float", "double")
    )
    (folder / "shim.cpp").write_text(shim)
    command = ["c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    command += ["-I", str(ROOT / "mona_kernels/csrc"), "-o", str(folder / "entropy.so"), str(folder / "shim.cpp")]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "entropy.so"))

    def entropy(logits: Any, gradient: Any, threads: int) -> float:
        function = library.entropy_float if logits.dtype == torch.float32 else library.entropy_double
        function.restype = ctypes.c_double
        pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (logits, gradient))
        sizes = (ctypes.c_int64(size) for size in logits.shape)
        return float(function(*pointers, *sizes, threads))

    return SimpleNamespace(entropy=entropy)


def test_an_op_compiles_and_equals_its_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mona_kernels
    from mona_kernels import ops

    printed = files("op.md")
    package = "mona_kernels/ops/entropy/"
    (folder := tmp_path / "entropy").mkdir()
    monkeypatch.setattr(
        mona_kernels, "_training", compiled(printed["mona_kernels/csrc/entropy.hpp"], tmp_path), raising=False
    )
    for ending in ("reference.py", "__init__.py"):
        (folder / ending).write_text(printed[package + ending])
    spec = importlib.util.spec_from_file_location(
        "mona_kernels.ops.entropy", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec and spec.loader
    op = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mona_kernels.ops.entropy", op)
    spec.loader.exec_module(op)
    monkeypatch.setattr(ops, "entropy", op, raising=False)
    names: dict[str, Any] = {}
    exec(printed["tests/kernels/test_entropy.py"], names)
    for name, test in names.items():
        if name.startswith("test_"):
            test()
    sys.modules.pop("mona_kernels.ops.entropy.reference", None)


def test_an_op_binds_and_is_as_long_as_the_page_says(tmp_path: Path) -> None:
    printed = files("op.md")
    for path in (p for p in printed if not p.startswith("tests") and not p.endswith("training.cpp")):
        claimed = re.search(rf"`{re.escape(path)}` \| new, (\d+)", (HOWTO / "op.md").read_text())
        lines = printed[path].count("\n")
        assert claimed and int(claimed[1]) == lines, f"{path} has {lines} lines"
    nanobind = pytest.importorskip("nanobind", reason="nanobind is needed for a build only")
    training = (ROOT / "mona_kernels/csrc/training.cpp").read_text()
    function, line = printed["mona_kernels/csrc/training.cpp"].split("// bind_floats\n")
    (tmp_path / "entropy.hpp").write_text(printed["mona_kernels/csrc/entropy.hpp"])
    for before, added in (
        ('#include "equivariance.hpp"\n', '#include "entropy.hpp"\n'),
        ("template <typename T>\nvoid bind_floats", function),
        ('  m.def("equivariance"', line),
    ):
        training = training.replace(before, added + before)
    for part in ('#include "entropy.hpp"', function, line):
        assert part in training, f"training.cpp has no place for {part}"
    (tmp_path / "training.cpp").write_text(training)
    import sysconfig

    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", str(ROOT / "mona_kernels/csrc"), "-I", str(tmp_path)]
    command += ["-I", nanobind.include_dir(), "-I", sysconfig.get_path("include"), str(tmp_path / "training.cpp")]
    subprocess.run(command, check=True)
