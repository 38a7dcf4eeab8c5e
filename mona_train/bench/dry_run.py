"""`mona bench --dry-run`: the rows, and about how long and how much memory they will take."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from mona_train.bench.estimate import Estimates, busy
from mona_train.bench.plan import TO_DO, Plan
from mona_train.run.display import span

GB = 1e9


def print_plan(plan: Plan, *, jobs: int, threads: int) -> None:
    estimates = Estimates(threads)
    known = {row.key: estimates.of(row.config, row.source.task) for row in plan.rows}
    console = Console(highlight=False, markup=False)
    table = Table(box=box.SIMPLE, title=f"{plan.table}: {len(plan.rows)} rows", title_justify="left")
    table.add_column("row", overflow="fold")
    for column in ("preset", "steps", "about", "memory", ""):
        table.add_column(column, justify="right" if column in ("steps", "about", "memory") else "left")
    for row in plan.rows:
        e = known[row.key]
        row_cells = row.row.name, row.config.preset, str(row.config.steps), span(e.seconds), f"{e.memory / GB:.1f} GB"
        table.add_row(*row_cells, row.state if row.state != TO_DO else "")
    console.print(table)
    to_do = plan.to_do
    seconds = sum(known[row.key].seconds for row in to_do)
    for rows in plan.shared.values():
        saved = known[rows[0].key].before * (len(rows) - 1)
        seconds -= saved
        console.print(f"{len(rows)} rows share one pre-training, which saves {span(saved)}")
    memory = sum(sorted((known[row.key].memory for row in to_do), reverse=True)[:jobs])
    console.print(
        f"{len(plan.rows)} rows, {len(plan.rows) - len(to_do)} of them finished; {len(to_do)} to do: about "
        f"{span(seconds / max(1, min(jobs, len(to_do))))} with --jobs {jobs} ({threads} threads each), "
        f"{memory / GB:.1f} GB of memory. These are estimates, from one U-Net pass timed on this machine."
    )
    if why := busy():
        console.print(f"note: {why}")
    missing = {row.source.missing for row in plan.rows if row.source.missing}
    for why in sorted(missing):
        console.print(f"note: no prepared data yet, so the size of a slice is guessed: {why}", soft_wrap=True)
