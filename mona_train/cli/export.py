"""`mona export`: a run becomes a model file, checked against the run before it is given its name."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from mona_infer.errors import InputError

FORMATS = ("onnx", "trt")


def export(
    run: Path | None = typer.Argument(None, metavar="[RUN]", help="The run's folder. Default: the newest in runs/."),
    format_: str = typer.Option("onnx", "--format", help="onnx, or trt: also a TensorRT plan for this machine's GPU."),
    precision: str = typer.Option("fp32", help="fp32, fp16, int8."),
    out: Path | None = typer.Option(None, help="The model file. Default: RUN/model.onnx, RUN/model-fp16.onnx, ..."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write the certificate as JSON."),
) -> None:
    """Make a model file from a run, and check on whole volumes that it gives the same masks as the run's network.

    An export whose masks differ too much fails (exit code 1) and leaves no model.
    """
    from mona_train.export.make import export_run
    from mona_train.run.load import newest_run

    if format_ not in FORMATS:
        raise InputError(f"unknown --format {format_!r}; choose {' or '.join(FORMATS)}")
    folder = run or newest_run()
    model, certificate = export_run(folder, precision, out, say=typer.echo if json_path != "-" else None)
    written = [model.path, model.path.with_suffix(".certificate.json")]
    if json_path == "-":
        typer.echo(json.dumps(certificate, indent=1))
    elif json_path:
        from mona_infer.io.atomic import write_text

        write_text(Path(json_path), json.dumps(certificate, indent=1) + "\n")
        written.append(Path(json_path))
    try:
        if format_ == "trt":
            from mona_train.export.tensorrt import export_plan

            written += export_plan(model, folder, say=typer.echo if json_path != "-" else None)
    finally:
        if json_path != "-":
            typer.echo(f"wrote {', '.join(map(str, written))}")
