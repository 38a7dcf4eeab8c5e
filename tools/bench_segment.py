"""`mona segment` against the bare runtime and against the published PyTorch code, and the best engine settings.

    python tools/bench_segment.py [--model MODEL.onnx] [--quick] [engines|volumes]
    python tools/bench_segment.py --model MODEL.onnx looks

engines: milliseconds per slice for different threads, batches, graph optimisations, layouts and OpenVINO, one changed
at a time.  volumes: `mona segment` on a cardiac stack and on a CT, each in its own process, against the bare session on
the same slices and against the published test script.  Only results that agree are timed.  Without --model, the network
is the paper's U-Net with random weights: its output is noise, but it takes the same time.  looks: `mona segment` with
an exported model that has a first look, against bare sessions that do the same looks on the same windows, which lie
ready in memory; the model's certificate must have passed.  Twice: once the libraries are loaded, and the whole process,
in which the bare one imports only NumPy and ONNX Runtime and loads its windows from a file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

AGREE = 1e-4  # share of pixels whose class may differ: sums in another order break ties differently
VOLUMES = {"small": ((10, 256, 216), (10.0, 1.4, 1.4)), "large": ((300, 512, 512), (1.0, 0.8, 0.8))}
LIMITS = {
    "small": (1.5, 3.0),
    "large": (1.15, 1.5),
}  # at most this many times the bare session; at least this many times faster than eager
MEGABYTES = 1200
MONA = Path(sys.executable).with_name("mona")


def random_model(folder: Path, side: int) -> Path:
    """A model file of the paper's U-Net with random weights, and the same weights for PyTorch next to it."""
    import torch
    from safetensors.torch import save_file

    from mona_infer.models.file import seal
    from mona_infer.task import CARDIAC
    from mona_train.export.onnx import serialise, to_onnx
    from mona_train.networks import UNet

    torch.manual_seed(0)
    network = UNet(4).eval()
    task = {**json.loads(CARDIAC.to_json()), "size": [side, side]}
    path = folder / f"unet-{side}.onnx"
    path.write_bytes(seal(serialise(to_onnx(network, (side, side))), {"task": task}))
    save_file(network.state_dict(), path.with_suffix(".safetensors"))
    return path


def session(content: bytes, threads: int = 0, level: str = "ALL", spinning: bool = False, arena: bool = True) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or _cores()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    options.enable_cpu_mem_arena = arena
    options.log_severity_level = 4
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def bench_engines(path: Path, slices: int, runs: int) -> None:
    from measuring import console
    from rich.table import Table

    from mona_infer.models.file import read_model

    model = read_model(path)
    rows, columns = model.task.input_size
    given = np.random.default_rng(0).random((slices, rows, columns), np.float32)

    def ort(batch: int = 4, **settings: Any) -> Callable[[], Any]:
        run = session(model.content, **settings).run
        return lambda: np.concatenate(
            [run(None, {"slices": given[n : n + batch, None]})[0].argmax(1) for n in range(0, slices, batch)]
        )

    def openvino(batch: int) -> Callable[[], Any]:
        from mona_infer.engines.openvino import OpenvinoEngine

        run = OpenvinoEngine(model).run
        return lambda: np.concatenate([run(given[n : n + batch]).argmax(1) for n in range(0, slices, batch)])

    cores = _cores()
    made: dict[str, Callable[[], Callable[[], Any]]] = {
        f"ONNX Runtime: {cores} threads, batch 4, all optimisations, no spinning": ort,
        **{f"  threads {n}": lambda n=n: ort(threads=n) for n in sorted({1, cores, 2 * cores} - {cores})},
        **{f"  batch {n}": lambda n=n: ort(batch=n) for n in (1, 2, 8, 16)},
        "  optimisation basic": lambda: ort(level="BASIC"),
        "  optimisation extended, layout NCHW": lambda: ort(level="EXTENDED"),
        "  optimisation layout, NCHWc": lambda: ort(level="LAYOUT"),
        "  spinning": lambda: ort(spinning=True),
        "  no memory arena": lambda: ort(arena=False),
        **{f"OpenVINO, layout its own, batch {n}": lambda n=n: openvino(n) for n in (1, 4, 8)},
    }
    calls, first = {}, None
    for name, make in made.items():
        try:
            calls[name] = make()
        except Exception as error:  # OpenVINO is not installed, or an optimisation level does not exist
            console.print(f"left out: {name.strip()} ({error})")
            continue
        answer = calls[name]()
        first = answer if first is None else first
        changed = float((answer != first).mean())
        if changed > AGREE:
            console.print(f"left out: {name.strip()}: {changed:.2%} of its pixels differ")
            del calls[name]
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(runs):  # in turns, so that other load on the machine affects all of them
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start) / slices)
    base = next(iter(best.values()))
    table = Table("", "ms a slice", "ratio", title=f"{model.precision} network at {rows}x{columns}")
    for name, value in best.items():
        table.add_row(name, f"{value:.1f}", f"{value / base:.2f}")
    console.print(table)


def scan(path: Path, shape: tuple[int, int, int], spacing: tuple[float, ...]) -> None:
    """An ellipsoid in smooth noise, stored as a scanner would: slices last, int16."""
    import nibabel as nib

    rng = np.random.default_rng(0)
    axes = [np.linspace(-2, 2, n, dtype=np.float32) for n in shape]
    voxels = np.empty(shape[::-1], np.int16, order="F")
    for k, z in enumerate(axes[0]):
        coarse = np.kron(rng.random((shape[2] // 8 + 1, shape[1] // 8 + 1)), np.ones((8, 8)))[: shape[2], : shape[1]]
        inside = axes[2][:, None] ** 2 + axes[1][None] ** 2 + z * z < 1
        voxels[:, :, k] = 600 * inside + 300 * coarse + 40 * rng.random(inside.shape)
    nib.save(nib.Nifti1Image(voxels, np.diag([*spacing[::-1], 1.0])), path)


def bench_volumes(path: Path, folder: Path, names: list[str], runs: int) -> bool:
    """Whether every limit holds.  mona is also timed including process start, as users run it."""
    import nibabel as nib
    from measuring import console
    from rich.table import Table

    good = True
    for name in names:
        shape, spacing = VOLUMES[name]
        given = folder / f"{name}.nii.gz"
        scan(given, shape, spacing)
        found: dict[str, dict[str, float]] = {}
        for _ in range(runs):
            for how in ("mona", "bare", "eager"):
                start = time.perf_counter()
                part = [
                    sys.executable,
                    __file__,
                    "--part",
                    how,
                    str(path),
                    str(given),
                    str(folder / f"{name}-{how}.nii.gz"),
                ]
                done = subprocess.run(part, capture_output=True, text=True, check=True)
                one = {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - start}
                if how == "mona":
                    start = time.perf_counter()
                    command = [MONA, "segment", given, "--out", folder / "again.nii.gz", "--model", path, "--overwrite"]
                    subprocess.run(command, capture_output=True, check=True)
                    one["process"] = time.perf_counter() - start
                before = found.setdefault(how, one)
                found[how] = {key: max(value, before[key]) if key == "megabytes" else min(value, before[key])
                              for key, value in one.items()}  # fmt: skip
        masks = [np.asarray(nib.load(folder / f"{name}-{how}.nii.gz").dataobj) for how in ("mona", "eager")]
        changed = float((masks[0] != masks[1]).mean())
        if changed > AGREE:
            raise SystemExit(f"{name}: {changed:.2%} of the voxels differ between mona and eager; nothing to compare")
        table = Table("", "s", "s with process start", "peak MB", title=f"{name}: {'x'.join(map(str, shape))}")
        for how, values in found.items():
            table.add_row(how, f"{values['seconds']:.2f}", f"{values['process']:.2f}", f"{values['megabytes']:.0f}")
        console.print(table)
        bare = found["mona"]["seconds"] / found["bare"]["seconds"]
        eager = found["eager"]["process"] / found["mona"]["process"]
        most, least = LIMITS[name]
        held = bare <= most and eager >= least and found["mona"]["megabytes"] < MEGABYTES
        good &= held
        console.print(
            f"{bare:.2f} times the bare session (at most {most}), "
            f"{eager:.2f} times faster than eager (at least {least}), "
            f"{changed:.0e} of the voxels differ: {'held' if held else 'NOT held'}\n"
        )
    return good


def bench_looks(path: Path, folder: Path, runs: int) -> bool:
    """Whether `mona segment` stays within the limits of bare sessions that do both looks."""
    from measuring import console

    from mona_infer.models.file import read_model

    model = read_model(path)
    if model.first_look is None or not model.facts["certificate"]["passed"]:
        raise SystemExit(f"{path} has no first look, or its certificate did not pass")
    good = True
    for name, (shape, spacing) in VOLUMES.items():
        given, out = folder / f"{name}.nii.gz", folder / f"{name}-mask.nii.gz"
        scan(given, shape, spacing)
        ready = looks_ready(path, given, folder / name)
        command: dict[str, list[Any]] = {
            "mona": [sys.executable, __file__, "--part", "mona", path, given, out],
            "bare": [sys.executable, __file__, "--part", "looks", ready, given, out],
            "whole": [MONA, "segment", given, "--out", out, "--model", path, "--overwrite"],
        }
        found: dict[str, list[float]] = {"mona": [], "bare": [], "whole mona": [], "whole bare": []}
        megabytes = dict.fromkeys(command, 0.0)
        for _ in range(runs if name == "large" else 3 * runs):  # in turns, so that other load affects all of them
            for how, line in command.items():
                start = time.perf_counter()
                done = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=True)
                whole = time.perf_counter() - start
                if how != "whole":
                    one = json.loads(done.stdout.splitlines()[-1])
                    found[how].append(one["seconds"])
                    megabytes[how] = max(megabytes[how], one["megabytes"])
                if how != "mona":
                    found["whole mona" if how == "whole" else "whole bare"].append(whole)
        best = {how: min(seconds) for how, seconds in found.items()}
        ratio, most = best["mona"] / best["bare"], LIMITS[name][0]
        good &= ratio <= most
        console.print(
            f"{name}, {'x'.join(map(str, shape))}, both looks: mona {best['mona']:.3f} s, "
            f"{megabytes['mona']:.0f} MB; bare {best['bare']:.3f} s, {megabytes['bare']:.0f} MB: "
            f"{ratio:.2f} times (at most {most}); with process start {best['whole mona']:.3f} s and "
            f"{best['whole bare']:.3f} s: {best['whole mona'] / best['whole bare']:.2f} times"
        )
    return good


def looks_ready(path: Path, given: Path, folder: Path) -> Path:
    """A folder with what bare sessions need of a scan: both networks, and the windows as `mona segment` sees them."""
    from mona_infer.geometry.stack import SliceStack
    from mona_infer.io.read import read_volume
    from mona_infer.models.file import read_model
    from mona_infer.segmenting.first_look import find_box, look_frames

    model = read_model(path)
    assert model.first_look is not None
    stack = SliceStack(read_volume(given), model.task)
    frames = look_frames(stack)[:, None]
    (answer,) = session(model.first_look.content).run(None, {"slices": frames})
    stack = stack.aimed_at(find_box(answer, stack.frame))
    folder.mkdir()
    (folder / "look.onnx").write_bytes(model.first_look.content)
    (folder / "network.onnx").write_bytes(model.content)
    np.save(folder / "look.npy", frames)
    np.save(folder / "network.npy", stack.read(0, len(stack))[:, None])
    (folder / "batch").write_text(str(4 * len(stack.windows)))
    return folder


def part_mona(model: Path, given: Path, out: Path) -> float:
    """The command itself, from reading to writing; timing starts once its libraries are loaded."""
    import onnxruntime  # noqa: F401

    import mona_infer.cli.segment
    import mona_infer.segmenting.pipeline  # noqa: F401
    from mona_infer.cli.main import app

    start = time.perf_counter()
    app(["segment", str(given), "--out", str(out), "--model", str(model), "--overwrite"], standalone_mode=False)
    return time.perf_counter() - start


def part_bare(model: Path, given: Path, out: Path) -> float:
    """Only a session, on slices that are already in memory in the network's format."""
    from mona_infer.geometry.stack import SliceStack
    from mona_infer.io.read import read_volume
    from mona_infer.models.file import read_model

    content = read_model(model)
    slices = [part[:, None] for _, part in SliceStack(read_volume(given), content.task).batches(4)]
    start = time.perf_counter()
    run = session(content.content).run
    for part in slices:
        run(None, {"slices": part})
    return time.perf_counter() - start


def part_looks(ready: Path, given: Path, out: Path) -> float:
    """A session for each look, on what `looks_ready` saved."""
    import onnxruntime  # noqa: F401

    networks = [(ready / f"{name}.onnx").read_bytes() for name in ("look", "network")]
    frames, slices = (np.load(ready / f"{name}.npy") for name in ("look", "network"))
    batch = int((ready / "batch").read_text())
    start = time.perf_counter()
    session(networks[0]).run(None, {"slices": frames})
    run = session(networks[1]).run
    for n in range(0, len(slices), batch):
        run(None, {"slices": slices[n : n + batch]})
    return time.perf_counter() - start


def part_eager(model: Path, given: Path, out: Path) -> float:
    """As in the published test script: slice by slice, zoom of order 0, forward, argmax, zoom back, write."""
    import nibabel as nib
    import torch
    from safetensors.torch import load_file
    from scipy.ndimage import zoom

    from mona_infer.models.file import read_model
    from mona_train.networks import UNet

    start = time.perf_counter()
    network = UNet(4)
    network.load_state_dict(load_file(model.with_suffix(".safetensors")))
    network.eval()
    rows, columns = read_model(model).task.input_size
    image = nib.load(given)
    voxels = np.asarray(image.dataobj).astype(np.float32)
    voxels = (voxels - voxels.min()) / (voxels.max() - voxels.min())
    mask = np.zeros(voxels.shape, np.uint8)
    for k in range(voxels.shape[2]):
        plane = voxels[
            ::-1, ::-1, k
        ].T  # the fixed order of `mona_infer.geometry.slicing`, so that the masks can be compared
        y, x = plane.shape
        small = zoom(plane, (rows / y, columns / x), order=0)
        with torch.no_grad():
            logits = network(torch.from_numpy(small)[None, None]).logits
            classes = torch.argmax(torch.softmax(logits, dim=1), dim=1)[0].numpy()
        mask[::-1, ::-1, k] = zoom(classes, (y / rows, x / columns), order=0).T
    nib.save(nib.Nifti1Image(mask, image.affine), out)
    return time.perf_counter() - start


def _cores() -> int:
    from mona_kernels.native import cores

    return cores()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("engines", "volumes", "looks", "all"), default="all")
    parser.add_argument("--model", type=Path, help="an exported model for the engines table and for looks")
    parser.add_argument("--quick", action="store_true", help="few slices, one run, only the small volume")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        how, *paths = args.part
        parts = {"mona": part_mona, "bare": part_bare, "looks": part_looks, "eager": part_eager}
        seconds = parts[how](*map(Path, paths))
        from measuring import memory  # not earlier: its libraries must not be measured

        print(json.dumps({"seconds": seconds, "megabytes": memory("VmHWM")}))
        return
    print(f"{_cores()} core(s)")
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.what == "looks":
            sys.exit(0 if bench_looks(args.model, folder, 3) else 1)
        if args.what != "volumes":
            for model in [args.model] if args.model else [random_model(folder, side) for side in (256, 96)]:
                bench_engines(model, 4 if args.quick else 16, 1 if args.quick else 7)
        if args.what != "engines":
            good = bench_volumes(
                random_model(folder, 256), folder, ["small"] if args.quick else [*VOLUMES], 1 if args.quick else 3
            )
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
