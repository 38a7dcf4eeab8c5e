"""One process to run, a row or a pre-training that rows share: what it needs, how far it is, whether it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mona_train.bench import pretraining
from mona_train.bench.line import finished
from mona_train.bench.places import Job
from mona_train.bench.plan import Plan, Planned
from mona_train.config.schema import Config
from mona_train.run.folder import CONFIG, write_config
from mona_train.run.machine import read_machine
from mona_train.run.tail import last_step, last_words

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"


@dataclass
class Task:
    name: str
    run: Path
    config: Config
    planned: Planned | None = None  # None: a pre-training
    after: Task | None = None
    state: str = WAITING
    job: Job | None = None
    kills: int = 0  # in a row, without a new checkpoint
    reached: int = 0  # when the last checkpoint was written, as the process was started
    log: Path = field(default_factory=Path)

    @property
    def steps(self) -> int:
        return self.config.steps if self.planned else pretraining.end_of(self.config)

    @property
    def words(self) -> list[str]:
        """Of `mona`: a run that has not begun yet has its run.toml, and begins when it is resumed."""
        until = [] if self.planned else ["--until", str(self.steps)]
        return ["train", "--resume", str(self.run), *until]

    def ready(self) -> bool:
        return self.after is None or self.after.state == DONE

    def is_done(self) -> bool:
        return finished(self.run) if self.planned else pretraining.is_done(self.run, self.config)

    def prepare(self) -> None:
        """All that its process needs; may be repeated."""
        if not (self.run / CONFIG).is_file():
            write_config(self.config, self.run)
        if self.after is not None:
            pretraining.start_from(self.after.run, self.run)

    def threads(self, default: int) -> int:
        """A resumed run keeps its number of threads: another one adds up in another order."""
        kept = read_machine(self.run).get("threads")
        return kept if isinstance(kept, int) else default

    def checkpoint(self) -> int:
        """A number that changes with every checkpoint."""
        path = self.run / pretraining.LAST
        return path.stat().st_mtime_ns if path.is_file() else 0

    def step(self) -> int:
        return last_step(self.run)

    def last_words(self) -> str:
        return last_words(self.log)


def tasks_of(plan: Plan) -> list[Task]:
    """Pre-training comes before the first row that needs it."""
    found: list[Task] = []
    shared, made = plan.shared, {}
    for planned in plan.to_do:
        key = planned.pretraining
        fresh = not finished(planned.run) and not (planned.run / pretraining.LAST).is_file()
        if key in shared and key not in made and fresh:
            row = planned.row
            name = f"pre-training of {len(shared[key])} rows: {row.pretraining}, seed {row.seed}"
            made[key] = Task(name, plan.pretrained(key), planned.config, log=plan.folder / "logs" / f"{key}.log")
            found.append(made[key])
        log = plan.folder / "logs" / f"{planned.run.name}.log"
        after = made.get(key or "") if fresh else None
        found.append(Task(planned.row.name, planned.run, planned.config, planned, after, log=log))
    return found
