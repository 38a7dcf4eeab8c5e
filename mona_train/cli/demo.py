"""`mona demo`: train, evaluate and compare on a built-in phantom: MONA against supervised learning, 3 labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.errors import InputError

if TYPE_CHECKING:
    from mona_train.config.schema import Config
    from mona_train.data.cache import Cache
    from mona_train.data.case import Adapter

LABELLED = 3 / 24  # patients of the phantom's training set
STEPS = 1000  # of both stages together; the supervised network gets as many
PIXELS = 80  # long side of a slice
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
    from mona_train.cli.demo_scan import try_real_scan
    from mona_train.data.adapters import locate
    from mona_train.data.prepare import prepare

    if out.exists() and not (out / "README.txt").exists():
        raise InputError(f"{out} exists and was not written by `mona demo`; choose another folder with --out")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "README.txt").write_text("Made by `mona demo`, which replaces this folder.\n", encoding="utf-8")
    typer.echo("drawing 36 phantom hearts, two frames each: 24 training patients, 3 of them labelled")
    adapter, source = locate("phantom")
    cache = prepare(adapter, source, out / "cache", pixels=PIXELS)
    results, tiles = {}, []
    for method, title in METHODS.items():
        typer.echo(f"\n{title}, {steps} steps")
        results[method], cases = _train(_config(method, seed, steps), out / method, adapter, source, cache)
        tiles.append([scored.tiles for scored in cases])
    _print(results)
    rows = [[a[0], (METHODS["unet-l"], a[1][1]), ("MONA", b[1][1]), a[2]] for a, b in zip(*tiles, strict=True)]
    montage(out / "demo.png", rows[::4])
    for scored in cases:
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


def _config(method: str, seed: int, steps: int) -> Config:
    from mona_train.config.presets import preferred_pretraining, preset, with_stages
    from mona_train.config.schema import Every
    from mona_train.methods.registry import first_stage, stages_of

    pretrain = first_stage(method, "default", preferred_pretraining("quick"))
    asked = {"method": method, "pretrain": pretrain, "ratio": LABELLED, "seed": seed, "pixels": PIXELS, "steps": steps}
    config = preset("quick", dataset="phantom", precision="32-true", **asked)  # the same digits on every processor
    every = Every(validate=max(1, steps // 4), log=10, save=steps)
    kinds = {kind.name: kind.Settings for kind in stages_of(method, pretrain)}
    config = replace(config, width=0.5, every=every, pretrain_share=0.5)
    return with_stages(config, kinds)


def _train(config: Config, folder: Path, adapter: Adapter, source: Path, cache: Cache) -> tuple[dict[str, Any], Any]:
    from lightning_fabric import Fabric

    from mona_train.data.contrast import with_contrast
    from mona_train.data.resolved import resolve
    from mona_train.engine.first_look import with_first_look
    from mona_train.engine.session import Data, Session
    from mona_train.run.folder import write_config

    resolved, look = with_first_look(config, resolve(config, adapter, source, cache), cache)
    data = Data(config, with_contrast(resolved, cache), cache, look)
    session = Session(config, folder, data, Fabric(devices=1))
    write_config(config, folder)
    data.write(folder)
    results = session.run()
    return results, session.scores(data.test)


def _print(results: dict[str, dict[str, Any]]) -> None:
    from mona_infer.task import CARDIAC
    from mona_train.run.results import print_measured

    print_measured({METHODS[name]: result["test"] for name, result in results.items()}, CARDIAC)
