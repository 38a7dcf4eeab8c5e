"""`mona demo`: train, evaluate and compare on a built-in phantom: MONA against supervised learning, 3 labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from mona_infer.errors import InputError

STEPS = 1300  # of both stages together; the supervised network gets as many
METHODS = {"unet-l": "UNet-L", "mona": "MONA"}


def demo(
    out: Path = typer.Option(Path("demo"), help="Output folder; an earlier demo in it is replaced."),
    seed: int = typer.Option(0, help="Seed for weights, batches and augmentation."),
    steps: int = typer.Option(STEPS, help="Training steps of each method."),
) -> None:
    """Train MONA and a supervised network on a small phantom with three labelled patients, and compare them."""
    import shutil

    from mona_infer.io.nifti import write_mask, write_nifti
    from mona_infer.viewing.pictures import montage
    from mona_train.cli.demo_runs import PIXELS, on_test_cases, settings, train_all
    from mona_train.cli.demo_scan import try_real_scan
    from mona_train.data.adapters import locate
    from mona_train.data.prepare import prepare

    if out.exists() and not (out / "README.txt").exists():
        raise InputError(f"{out} exists and was not written by `mona demo`; choose another folder with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "README.txt").write_text("Made by `mona demo`, which replaces this folder.\n", encoding="utf-8")
    typer.echo("drawing 36 phantom hearts, two frames each: 24 training patients, 3 of them labelled")
    prepare(*locate("phantom"), out / "cache", pixels=PIXELS)
    typer.echo(f"training {' and '.join(METHODS.values())}, {steps} steps each")
    runs = {out / method: settings(method, seed, steps) for method in METHODS}
    train_all(runs, out / "cache")
    typer.echo("looking at what both answer on the test patients")
    (supervised, before), (mona, after) = map(on_test_cases, runs)
    _print({"unet-l": supervised, "mona": mona})
    pairs = zip([scored.tiles for scored in before], [scored.tiles for scored in after], strict=True)
    rows = [[a[0], (METHODS["unet-l"], a[1][1]), (METHODS["mona"], b[1][1]), a[2]] for a, b in pairs]
    montage(out / "demo.png", rows[::4])
    for scored in after:
        write_nifti(out / "scans" / f"{scored.case.name}.nii.gz", scored.case.image())
        assert scored.case.label is not None
        write_mask(out / "references" / f"{scored.case.name}.nii.gz", scored.case.label())
    line, written = try_real_scan(out)
    if line:
        typer.echo(line)
    typer.echo(f"Next: mona export {out / 'mona'}")
    names = f"{out / 'scans'} --out {out / 'masks'} --reference {out / 'references'}"
    typer.echo(f"      mona segment {names} --model {out / 'mona'}")
    typer.echo("With your own scans: mona train --dataset FOLDER")
    folders = [out / name for name in ("demo.png", "unet-l", "mona", "scans", "references")]
    typer.echo(f"wrote {', '.join(map(str, [*folders, *written]))}")


def _print(results: dict[str, dict[str, Any]]) -> None:
    from mona_infer.task import CARDIAC
    from mona_train.run.results import print_measured

    print_measured({METHODS[name]: result["test"] for name, result in results.items()}, CARDIAC)
