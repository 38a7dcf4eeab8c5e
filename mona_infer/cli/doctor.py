"""`mona doctor`: which engines, devices and kernels work on this machine, and how to fix those that do not."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

import typer

from mona_infer import __version__
from mona_infer.engines.base import engines
from mona_infer.engines.onnx import onnx_runtime
from mona_infer.errors import CheckFailed
from mona_infer.system.optional_parts import EXTRAS, install_command, requirements, version


@dataclass(frozen=True)
class Finding:
    part: str
    state: str  # "ok", "missing" or "broken"
    detail: str
    remedy: str = ""


def doctor(
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """Show which engines, devices and kernels work on this machine, and how to install the others."""
    findings = examine()
    text = json.dumps({"mona": __version__, "findings": [asdict(f) for f in findings]}, indent=2)
    if json_path == "-":
        typer.echo(text)
    else:
        _print(findings)
        if json_path:
            from pathlib import Path

            from mona_infer.io.atomic import write_text

            write_text(Path(json_path), text + "\n")
            typer.echo(f"wrote {json_path}")
    broken = [f for f in findings if f.state == "broken"]
    if broken:
        raise CheckFailed("; ".join(f"{f.part}: {f.detail}; run {f.remedy}" for f in broken))


def examine() -> list[Finding]:
    return [
        _python(),
        _kernels(),
        *_onnx_runtime(),
        *_other_engines(),
        *_training(),
        *_extras(),
        _niivue(),
        *_models(),
    ]


def _python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, mona {__version__}"
    return Finding("python", "ok", detail)


def _kernels() -> Finding:
    try:
        from mona_kernels.native import cores
    except ImportError as error:
        return Finding("C++ kernels", "broken", f"the compiled module cannot be loaded ({error})", "make install")
    return Finding("C++ kernels", "ok", f"{cores()} core(s)")


def _onnx_runtime() -> list[Finding]:
    cpu, gpu = version("onnxruntime"), version("onnxruntime-gpu")
    if cpu and gpu:
        remedy = f"python -m pip uninstall -y onnxruntime onnxruntime-gpu, then {_install('gpu', 'onnxruntime-gpu')}"
        detail = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
        return [Finding("ONNX Runtime", "broken", detail, remedy)]
    if not cpu and not gpu:
        remedy = f"{_install('cpu', 'onnxruntime')}  (with an NVIDIA GPU instead: {_install('gpu', 'onnxruntime-gpu')})"
        return [Finding("ONNX Runtime", "missing", "needed to run exported models", remedy)]
    try:
        providers = ", ".join(p.removesuffix("ExecutionProvider") for p in onnx_runtime().get_available_providers())
    except Exception as error:  # a broken native library can raise anything at import
        return [Finding("ONNX Runtime", "broken", f"cannot be imported ({error})", _install("cpu", "onnxruntime"))]
    return [Finding("ONNX Runtime", "ok", f"{cpu or gpu}, runs on {providers}")]


def _other_engines() -> list[Finding]:
    """One line for each runtime other than ONNX Runtime."""
    findings = []
    for name, kind in engines().items():
        if not kind.package.startswith("onnxruntime"):
            at = version(kind.package)
            detail = f"{at}, --engine {name}" if at else f"only for --engine {name}: {kind.summary}"
            remedy = "" if at else _install(kind.extra, kind.package)
            findings.append(Finding(kind.package, "ok" if at else "missing", detail, remedy))
    return findings


def _training() -> list[Finding]:
    installed = version("torch")
    if not installed:
        missing = install_command(*requirements("train").values())
        return [Finding("PyTorch", "missing", "needed to train and export", missing)]
    findings = [Finding("PyTorch", "ok", f"{installed}, {_devices()}")]
    triton = version("triton")
    if triton:
        findings.append(Finding("Triton", "ok", triton))
    elif sys.platform == "linux":
        findings.append(Finding("Triton", "missing", "needed for GPU kernels", _install("train", "triton")))
    absent = [r for name, r in requirements("train").items() if name not in ("torch", "triton") and not version(name)]
    if absent:
        findings.append(Finding("training", "missing", "needs more packages", install_command(*absent)))
    return findings


def _devices() -> str:
    try:
        import torch

        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    except Exception as error:  # as above
        return f"cannot be imported ({error})"
    return ", ".join(names) or "no CUDA device"


def _extras() -> list[Finding]:
    """One line for each extra that is a part of its own: there if all of its packages are."""
    findings = []
    for extra, use in EXTRAS.items():
        packages = requirements(extra)
        installed = [f"{name} {at}" for name in packages if (at := version(name))]
        if len(installed) < len(packages):
            absent = [requirement for name, requirement in packages.items() if not version(name)]
            findings.append(Finding(extra, "missing", f"only to {use}", install_command(*absent)))
        elif packages:  # else this mona was installed before it had the extra
            findings.append(Finding(extra, "ok", f"{', '.join(installed)}, to {use}"))
    return findings


def _models() -> list[Finding]:
    """The models that come with mona: each can be read and is the one that its card is of."""
    from mona_infer.errors import MonaError
    from mona_infer.models.bundled import bundled
    from mona_infer.models.file import read_model

    try:
        cards = bundled()
        for card in cards:
            read_model(card.model)
    except MonaError as error:
        return [Finding("models", "broken", str(error), "make install, or install mona again")]
    if not cards:
        return [Finding("models", "missing", "no model came with this mona", "mona train, then mona export")]
    return [Finding("models", "ok", f"{card.name}: DSC {card.dsc:.3f} on {card.measured_on}") for card in cards]


def _niivue() -> Finding:
    from mona_infer.viewing import niivue

    if niivue.library() is not None:
        return Finding("NiiVue", "ok", f"{niivue.VERSION}, pages show slices and 3-D")
    return Finding("NiiVue", "missing", "pages show plain 2-D slices; fetched with npm", niivue.fetch_command())


def _install(extra: str, package: str) -> str:
    return install_command(requirements(extra)[package])


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    colours: dict[str, Any] = {"ok": "green", "missing": "yellow", "broken": "red"}
    for f in findings:
        console.print(f"[{colours[f.state]}]{f.state:8}[/] {f.part:13} {escape(f.detail)}")
        if f.remedy:
            console.print(f"{'':22} {escape(f.remedy)}")
