"""`mona bench [TABLE]`: train the rows of a table and keep what they scored; `mona bench add` takes finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mona_infer.cli.examples import shown
from mona_infer.cli.main import CommandGroup, OutputCommand
from mona_infer.errors import CheckFailed, InputError
from mona_train.cli.bench_report import report
from mona_train.config.presets import PRESETS

if TYPE_CHECKING:
    from mona_train.bench.plan import Plan
    from mona_train.bench.rows import Row

FOLDER = Path("bench")
LOCK, DOING = "bench.lock", "running rows"


class TableGroup(CommandGroup):
    """`mona bench TABLE` is `mona bench run TABLE`: what is not a command is a table, a file or an option of `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, "run")


app = typer.Typer(
    cls=TableGroup,
    help="Train the rows of a table of results, and keep their scores. `mona bench` alone lists the tables.",
    epilog=shown("bench"),
    subcommand_metavar="TABLE|COMMAND [ARGS]...",
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def bench(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        from mona_train.bench.tables import SUMMARIES

        width = max(map(len, SUMMARIES))
        typer.echo("tables:")
        for name, summary in SUMMARIES.items():
            typer.echo(f"  {name:{width}}  {summary}")
        typer.echo("or the path of an own list, a .toml file; `mona bench run --help` shows the options")


@app.command(cls=OutputCommand)
def run(
    table: str = typer.Argument(..., help="A table of the paper (`mona bench` lists them), or an own list: LIST.toml."),
    preset: str | None = typer.Option(
        None, help=f"One of {', '.join(PRESETS)}. Default: the list's, or gpu if there is a GPU, otherwise cpu."
    ),
    methods: str | None = typer.Option(None, metavar="A,B", help="Only these methods."),
    ratios: str | None = typer.Option(None, metavar="R,R", help="Fractions of labelled patients, e.g. 0.01,0.05."),
    seeds: str | None = typer.Option(None, metavar="N,N", help="Seeds, e.g. 0,1: every row with each of them."),
    steps: int | None = typer.Option(None, min=1, help="Total number of steps of every row. Default: the preset's."),
    settings: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change a setting of every row."),
    data: Path | None = typer.Option(None, help="Folder of the data set. Default: $MONA_DATA/NAME, else ./data/NAME."),
    out: Path = typer.Option(FOLDER, help="Folder for runs, logs and results.jsonl."),
    jobs: int = typer.Option(1, min=1, help="Rows side by side."),
    threads: int | None = typer.Option(None, min=1, help="Threads of each row. Default: the cores, shared by --jobs."),
    where: str = typer.Option("here", help="here, slurm, or local: as on Slurm, but on this machine (needs submitit)."),
    slurm: list[str] = typer.Option(
        [], "--slurm", metavar="KEY=VALUE", help="A parameter of submitit, e.g. slurm_partition=gpu, gpus_per_node=1."
    ),
    any_code: bool = typer.Option(
        False, "--any-code", help="Rows that another version of the code measured count as finished."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print rows, hours and memory, and train nothing."),
) -> None:
    """Train every row of a table that is not finished yet; a killed or interrupted bench goes on where it was."""
    from mona_train.bench.grids import Narrowing
    from mona_train.bench.slurm import WHERE, option
    from mona_train.config.chosen import parsed

    if where not in WHERE:
        raise InputError(f"unknown --where {where!r}; choose {', '.join(WHERE)}")
    narrowing = Narrowing(
        methods=_words(methods),
        ratios=_numbers("--ratios", ratios, float),
        seeds=_numbers("--seeds", seeds, int),
        preset=preset,
        steps=steps,
        settings=tuple(map(parsed, settings)),
        data=str(data.resolve()) if data else None,
    )
    rows = _rows(table, narrowing)
    from mona_kernels.native import cores

    threads = threads or max(1, cores() // jobs)
    place = _place(where, out, dict(map(option, slurm)), threads) if where != "here" and not dry_run else None
    if dry_run:
        _dry_run(rows, out, jobs=jobs, threads=threads, any_code=any_code, script=_script(where, out, slurm, threads))
        return
    from mona_train.run.lock import only_one

    with only_one(out, LOCK, DOING):
        _run(rows, out, place, jobs=jobs, threads=threads, any_code=any_code)


@app.command(cls=OutputCommand)
def add(
    runs: list[Path] = typer.Argument(..., metavar="RUN...", help="Folders of finished runs of `mona train`."),
    to: Path = typer.Option(FOLDER, help="Folder of the bench, with its results.jsonl."),
    table: str | None = typer.Option(None, help="The table they belong to. Default: their data set's."),
    same_code: bool = typer.Option(
        False, "--same-code", help="Take runs that recorded no code as trained by the code that is installed."
    ),
) -> None:
    """Take finished runs as rows; scores of cases that a run did not keep are measured again."""
    from mona_train.bench.line import UNKNOWN, line_of
    from mona_train.bench.results import FILE, Results
    from mona_train.run.code import code_hash
    from mona_train.run.lock import only_one

    with only_one(to, LOCK, DOING):
        results = Results(to / FILE)
        for path in runs:
            line = line_of(path, table or "", code=code_hash() if same_code else None)
            line["table"] = table or line["dataset"]
            known = results.find(line["table"], line["row"]) is not None
            results.append(line)
            unknown = "; its code is not known, so it is kept apart (--same-code if it is this one)"
            typer.echo(
                f"{path}: {line['method']}, {line['preset']}, seed {line['seed']}: "
                f"{'was there already' if known else 'added to ' + line['table']}{unknown * (line['code'] == UNKNOWN)}"
            )
    typer.echo(f"wrote {to / FILE}")


app.command(cls=OutputCommand)(report)


def _rows(table: str, narrowing: Any) -> list[Row]:
    from dataclasses import replace

    from mona_train.bench.grids import rows_of
    from mona_train.bench.lists import read_list
    from mona_train.bench.tables import tables
    from mona_train.config.default_preset import default_preset

    name, why = default_preset()
    known = tables()
    if table in known:
        if narrowing.preset is None:
            typer.echo(f"preset {name}: {why}")
        grids = tuple(replace(grid, preset=name) for grid in known[table])
    elif table.endswith(".toml"):
        grids = read_list(Path(table), name)
    else:
        raise InputError(f"unknown table {table!r}; choose one of {', '.join(known)}, or a list of your own, LIST.toml")
    rows = rows_of(grids, narrowing)
    if not rows:
        there = ", ".join(dict.fromkeys(method for grid in grids for method in grid.methods))
        raise InputError(f"no row of {table} matches; its methods are {there}")
    return rows


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(option: str, text: str | None, kind: type) -> tuple[Any, ...] | None:
    words = _words(text)
    if words is None:
        return None
    try:
        return tuple(map(kind, words))
    except ValueError:
        example = "0,1" if kind is int else "0.01,0.05"
        raise InputError(f"{option}: expected numbers separated by commas, e.g. {example}, found {text!r}") from None


def _place(where: str, out: Path, options: dict[str, Any], threads: int) -> Any:
    from mona_train.bench.slurm import Submitit

    return Submitit(where, out / "jobs", options, threads)


def _script(where: str, out: Path, slurm: list[str], threads: int) -> str:
    if where != "slurm":
        return ""
    from mona_train.bench.slurm import option, sbatch_script

    return sbatch_script(out / "jobs", dict(map(option, slurm)), threads)


def _dry_run(rows: list[Row], out: Path, *, jobs: int, threads: int, any_code: bool, script: str) -> None:
    from mona_train.bench.dry_run import print_plan
    from mona_train.bench.plan import plan
    from mona_train.bench.results import FILE, Results

    results = Results(out / FILE)
    planned = plan(rows, out, results, ready=False, any_code=any_code)
    print_plan(planned, jobs=jobs, threads=threads)
    _say_other_code(planned, results, any_code)
    if script:
        typer.echo(f"\nEach row would be submitted with:\n\n{script}")


def _run(rows: list[Row], out: Path, place: Any, *, jobs: int, threads: int, any_code: bool) -> None:
    from mona_train.bench.estimate import passes_of
    from mona_train.bench.places import Here
    from mona_train.bench.plan import plan
    from mona_train.bench.results import FILE, Results
    from mona_train.bench.runner import Runner, take_over
    from mona_train.bench.show import Show

    results = Results(out / FILE)
    planned = plan(rows, out, results, ready=True, any_code=any_code)
    _say_other_code(planned, results, any_code)
    if take_over(planned, results):
        planned = plan(rows, out, results, ready=True, any_code=any_code)
    to_do = planned.to_do
    typer.echo(f"{len(planned.rows)} rows, {len(planned.rows) - len(to_do)} of them finished")
    show = Show(len(to_do), {row.run.name: passes_of(row.config, row.source.task) for row in to_do})
    try:
        failed = Runner(planned, results, place or Here(), jobs=jobs, threads=threads, show=show).run()
    except KeyboardInterrupt:
        typer.echo("stopped; repeat the command to go on")
        raise
    if failed:
        names = "; ".join(f"{task.name} (see {task.log})" for task in failed)
        raise CheckFailed(f"{len(failed)} of {len(planned.rows)} rows failed: {names}; repeat the command to try again")
    typer.echo(f"wrote {out / FILE}")


def _say_other_code(plan: Plan, results: Any, any_code: bool) -> None:
    from mona_train.bench.plan import FINISHED
    from mona_train.bench.rows import config_key

    others = [
        results.by_other_code(row.row.table, config_key(row.config), row.source.content)
        for row in plan.rows
        if row.state != FINISHED
    ]
    lines = [found[-1] for found in others if found]
    if lines:
        commits = ", ".join(dict.fromkeys(str(line.get("commit") or line["code"]) for line in lines))
        what = "they count as finished" if any_code else "they are kept apart, and trained again without --any-code"
        typer.echo(f"{len(lines)} rows were measured by other code ({commits}): {what}")
