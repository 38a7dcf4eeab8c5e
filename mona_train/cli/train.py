"""`mona train`: from the name of a data set to a trained network, its scores and the next command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.errors import CheckFailed, InputError
from mona_train.config.presets import PRESETS

if TYPE_CHECKING:
    from mona_train.config.schema import Config
    from mona_train.engine.session import Data, Session


MAY_CHANGE = ("resume", "data", "devices", "profile", "until")  # when a run is resumed


def train(
    ctx: typer.Context,
    dataset: str | None = typer.Option(
        None, help="A known data set (`--dataset help` lists them), or the path of a folder."
    ),
    ratio: float | None = typer.Option(
        None, help="Fraction of training patients whose labels are used (0.05 is 5 %). Default: all."
    ),
    method: str = typer.Option("mona", help="How to train; `--method help` lists the methods."),
    data: Path | None = typer.Option(
        None,
        help="Folder of the data set; with --resume, its new location. Default: $MONA_DATA/NAME, else ./data/NAME.",
    ),
    preset: str | None = typer.Option(
        None, help=f"One of {', '.join(PRESETS)}. Default: gpu if there is a GPU, otherwise cpu."
    ),
    pretrain: str = typer.Option(
        "default", help="Pre-training: 'none', or a stage that `--method help` lists. Default: the preset's."
    ),
    principles: str | None = typer.Option(
        None,
        metavar="A,B",
        help="Which of tailness, consistency and diversity to use; '' for none. Default: the preset's.",
    ),
    steps: int | None = typer.Option(None, help="Total number of steps, over all stages. Default: set by the preset."),
    seed: int = typer.Option(0, help="Seed for weights, batches and augmentation."),
    split_seed: int | None = typer.Option(
        None, help="Draw the labelled patients with this seed instead of using the published ones."
    ),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Change any setting of run.toml, e.g. optimiser.lr=0.005."
    ),
    out: Path | None = typer.Option(None, help="Folder for the run. Default: runs/DATASET-METHOD-RATIO."),
    resume: Path | None = typer.Option(None, metavar="RUN", help="Resume an interrupted run."),
    devices: int = typer.Option(1, min=1, help="Number of CPU processes or GPUs to train on."),
    until: int | None = typer.Option(None, min=1, metavar="STEP", help="Stop after this step, to be resumed later."),
    profile: bool = typer.Option(
        False, "--profile", help="Time each part of a step and print the times, without training."
    ),
) -> None:
    """Train a network from many scans and few labels, evaluate it, and save it in a run folder."""
    from mona_train.config.chosen import chosen, parsed
    from mona_train.config.default_preset import default_preset
    from mona_train.run.folder import read_config

    if "help" in (method, dataset):
        from mona_train.cli.lists import print_datasets, print_methods

        (print_methods if method == "help" else print_datasets)()
        return
    if resume is not None:
        _refuse_changes(ctx, resume)
        config, folder = read_config(resume), resume
    else:
        if dataset is None:
            raise InputError("choose a data set with --dataset, e.g. `mona train --dataset acdc --ratio 0.05`")
        name, why = (preset, "") if preset else default_preset()
        if why and _first_here():
            typer.echo(f"preset {name}: {why}")
        config = chosen(
            str(name),
            method=method,
            pretrain=pretrain,
            steps=steps,
            principles=principles,
            settings=map(parsed, settings),
            dataset=dataset,
            ratio=ratio,
            data=str(data) if data else None,
            seed=seed,
            split_seed=split_seed,
        )
        folder = out or _free_folder(config)
    _run(
        config,
        folder,
        devices=devices,
        resumed=resume is not None,
        moved=data if resume else None,
        profile=profile,
        until=until,
    )


def _refuse_changes(ctx: typer.Context, run: Path) -> None:
    """A resumed run keeps its settings: its schedule, split and networks depend on them."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name not in MAY_CHANGE and source is not None and source.name == "COMMANDLINE":
            raise InputError(
                f"{parameter.opts[0]} cannot be changed when a run is resumed: it keeps the settings in "
                f"{run / 'run.toml'}, which its learning rate schedule depends on; start a new run instead"
            )


def _free_folder(config: Config) -> Path:
    share = "" if config.ratio is None else f"-{100 * config.ratio:g}pc"
    stem = f"{Path(config.dataset).name}-{config.method}{share}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 10_000))
    return next(Path("runs") / name for name in names if not (Path("runs") / name).exists())


def _run(
    config: Config,
    folder: Path,
    *,
    devices: int,
    resumed: bool,
    profile: bool,
    moved: Path | None = None,
    until: int | None = None,
) -> None:
    import logging
    import warnings

    from lightning_fabric import Fabric

    from mona_train.engine.allocator import keep_freed_memory
    from mona_train.engine.session import Session
    from mona_train.run.lock import only_one

    if not resumed:
        _refuse_a_second_run(folder)
    warnings.filterwarnings("ignore", module="lightning_fabric")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    with contextlib.ExitStack() as stack:
        if resumed and not profile and _first_of_all():
            stack.enter_context(only_one(folder))
        # The first process prepares the data before the others start: they find the cache ready, and bad input is
        # reported by a single process.
        data = _data(config, folder, resumed, moved) if _first_here() else None
        precision: Any = config.precision
        fabric = Fabric(precision=precision, **_processes(devices))
        with _reachable():
            fabric.launch()
        main = fabric.global_rank == 0
        folder = fabric.broadcast(folder)  # each process has chosen a free folder by itself
        data = data or _data(config, folder, resumed, moved)
        keep_freed_memory()
        stack.enter_context(_report_memory(config))
        session = Session(config, folder, data, fabric)
        if profile:
            from mona_train.engine.profile import print_profile
            from mona_train.engine.profile import profile as measure

            (print_profile if main else measure)(session.trainer)
            return
        if main and not resumed:  # only now: a run that is refused must not leave a folder behind
            stack.enter_context(only_one(folder))
            _refuse_a_second_run(folder)  # another process may have begun, and even ended, since this one looked
        if resumed:
            session.resume()
        _train(session, main=main, devices=devices, until=until)


def _refuse_a_second_run(folder: Path) -> None:
    from mona_train.run.folder import CONFIG

    if (folder / CONFIG).exists():
        raise InputError(
            f"{folder} already contains a run; resume it with `mona train --resume {folder}`, or choose another folder "
            "with --out"
        )


def _train(session: Session, *, main: bool, devices: int, until: int | None = None) -> None:
    import shlex

    from mona_train.engine.session import Interrupted
    from mona_train.run.folder import write_config
    from mona_train.run.results import print_results

    folder, data = session.folder, session.data
    if main:
        typer.echo(data.split.describe())
        typer.echo(data.resolved.geometry)
        typer.echo(_cost(session))
        write_config(session.config, folder)
        data.write(folder)
    same_devices = ["--devices", str(devices)] if devices > 1 else []
    command = shlex.join(["mona", "train", "--resume", str(folder), *same_devices])
    try:
        results = session.run(until)
    except Interrupted:
        if not main:
            return  # with code 0: on any other code Fabric kills the first process
        typer.echo(f"stopped after step {session.trainer.number}; resume with: {command}")
        raise KeyboardInterrupt from None
    except CheckFailed:
        if main:
            raise
        return
    if main and not session.trainer.finished:
        typer.echo(f"stopped after step {session.trainer.number}, as asked; resume with: {command}")
        return
    if main:
        print_results(results, data.task)
        typer.echo(f"Training curves: tensorboard --logdir {folder}")
        typer.echo(f"Next: mona export {folder}, then mona segment SCAN --out MASK")
        typer.echo(f"wrote {folder}")


@contextlib.contextmanager
def _reachable() -> Iterator[None]:
    """Report processes that cannot talk to each other as an InputError; torch has no exception of its own for gloo."""
    try:
        yield
    except RuntimeError as error:
        if "connect" not in str(error):
            raise
        reason = " ".join(str(error).rpartition("] ")[2].split())
        raise InputError(
            f"this process cannot reach those on other machines ({reason}); on each machine, set GLOO_SOCKET_IFNAME "
            "(NCCL_SOCKET_IFNAME for GPUs) to the name of its network interface, as `ip address` shows it"
        ) from error


@contextlib.contextmanager
def _report_memory(config: Config) -> Iterator[None]:
    """Report running out of memory as an InputError; torch has an exception for a GPU, but none for the CPU."""
    import torch

    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        batch, size = config.batch, f"{config.pixels} pixels" if config.pixels else "x".join(map(str, config.size))
        raise InputError(
            f"not enough memory for width {config.width:g} and {batch.labelled}+{batch.unlabelled} slices of {size} "
            f"per step; lower width, {'pixels' if config.pixels else 'size'} or batch"
        ) from error


def _first_here() -> bool:
    """Whether this is the first process on its machine; known before the processes connect."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _first_of_all() -> bool:
    """Whether it is the first on all machines: torchrun numbers the processes before they start."""
    return _first_here() and os.environ.get("RANK", "0") == "0"


def _processes(devices: int) -> dict[str, Any]:
    """Arguments for Fabric: the processes that torchrun has started, or those to start."""
    import torch.distributed as dist

    nodes = 1
    if dist.is_torchelastic_launched():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    return {"devices": devices, "num_nodes": nodes, "strategy": "ddp" if devices * nodes > 1 else "auto"}


def _data(config: Config, folder: Path, resumed: bool, moved: Path | None) -> Data:
    from mona_train.data.contrast import with_contrast
    from mona_train.data.prepare import prepare
    from mona_train.data.resolved import check_settings, find_cache, find_data, read_resolved, resolve, resumed_with
    from mona_train.engine.first_look import with_first_look
    from mona_train.engine.session import Data

    before = read_resolved(folder) if resumed else None
    if before is not None:
        check_settings(before, config, folder)
    try:
        adapter, source = find_data(config, before, moved)
    except InputError as error:
        if not resumed or before is not None or moved is not None:
            raise
        # an older version wrote this run: all it recorded of the data is what the user typed
        raise InputError(f"{error}; use --data FOLDER to say where the run's data is now") from error
    place = find_cache(config, before, adapter, source)
    cache = prepare(adapter, source, place, config.size, pixels=config.pixels)
    resolved = resumed_with(before, folder, source, cache) if before else resolve(config, adapter, source, cache)
    resolved, look = with_first_look(config, resolved, cache, folder if resumed else None)
    return Data(config, with_contrast(resolved, cache), cache, look)


def _cost(session: Session) -> str:
    """The stages and the estimated time, from one U-Net pass timed on this machine."""
    from mona_train.engine.profile import seconds_per_pass
    from mona_train.run.display import span

    trainer, config = session.trainer, session.config
    seconds = seconds_per_pass(trainer)
    ahead = seconds * sum(trainer.cost(s, max(0, s.stop - max(s.first, trainer.number))) for s in trainer.spans)
    stages = ", ".join(f"{s.stage.name} {s.steps} steps" for s in trainer.spans)
    size = "x".join(map(str, trainer.task.input_size))
    batch = f"{config.batch.labelled}+{config.batch.unlabelled} per step"
    processes = f" in each of {trainer.processes.size} processes" if trainer.processes.size > 1 else ""
    return f"{stages}; slices of {size}, {batch}{processes}; about {span(ahead)} on this {trainer.device.type}"
