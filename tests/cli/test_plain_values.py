"""Options that need no conversion reach a command without pydantic, and look the same as with it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import typer
from helpers import models

from mona_infer.cli.main import OutputCommand


def command(cls: type) -> Any:
    """A command with every kind of option that mona has; returns what it was given."""
    app = typer.Typer(add_completion=False)

    @app.command(cls=cls)
    def run(
        scan: Path = typer.Argument(...),
        out: Path = typer.Option(...),
        model: Path | None = typer.Option(None),
        engine: str = typer.Option("auto"),
        threads: int = typer.Option(0, min=0),
        ratio: float = typer.Option(0.5),
        batch: int | None = typer.Option(None, min=1),
        tta: bool = typer.Option(False, "--tta"),
        sets: list[str] = typer.Option([], "--set"),
    ) -> Any:
        return scan, out, model, engine, threads, ratio, batch, tta, sets

    return typer.main.get_command(app)


@pytest.mark.parametrize(
    "args",
    [
        "a --out b",
        "a --out b --model c --engine cpu --threads 3 --ratio 0.25 --batch 2 --tta --set x=1 --set y=2",
        "a --out b --threads 0 --ratio 1e-3",
        "a",
        "--out b",
        "a --out b --threads -1",
        "a --out b --threads x",
        "a --out b --batch 0",
    ],
)
def test_values_and_errors_are_those_of_typer(args):
    def outcome(cls: type) -> Any:
        try:
            return command(cls)(args.split(), standalone_mode=False)
        except Exception as error:
            return type(error), error.format_message()  # type: ignore[attr-defined]

    found, wanted = outcome(OutputCommand), outcome(typer.core.TyperCommand)
    assert found == wanted
    assert list(map(type, found)) == list(map(type, wanted))


def test_segment_needs_no_pydantic(tmp_path):
    """Nor numpy.ma, which numpy.percentile imports."""
    task = replace(models.TASK, spacing=1.5, window=(32, 32), first_look=True, contrast=(1.0, 99.0))
    model, scan = models.write(tmp_path / "model.onnx", task), tmp_path / "scan.nii.gz"
    nib.save(nib.Nifti1Image(models.scan(), np.diag([1.5, 1.5, 8.0, 1.0])), scan)
    code = "import sys; from mona_infer.cli.main import app\n"
    code += "app(sys.argv[1:], standalone_mode=False)\n"
    code += "print([name for name in ('pydantic', 'numpy.ma') if name in sys.modules])"
    args = ["segment", scan, "--out", tmp_path / "mask.nii.gz", "--model", model]
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
