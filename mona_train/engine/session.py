"""One run from its first step to its last: folder, checkpoints, validation, logs, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from mona_infer.errors import CheckFailed, InputError
from mona_infer.io.atomic import write_text
from mona_infer.task import Task
from mona_infer.viewing.pictures import montage
from mona_train.config.schema import Config
from mona_train.data.cache import Cache
from mona_train.data.case import Case
from mona_train.data.resolved import Resolved
from mona_train.engine.divergence import Diverged, Watch
from mona_train.engine.first_look import save_first_look
from mona_train.engine.post_processing import RULES, choose_post_processing
from mona_train.engine.trainer import Trainer
from mona_train.engine.validate import Scored, by_case, summary, validate
from mona_train.export.parity import FULL, keep
from mona_train.methods.registry import stages_of
from mona_train.networks.unet import STRIDE
from mona_train.run import checkpoint
from mona_train.run.board import Board
from mona_train.run.display import Display
from mona_train.run.folder import clear
from mona_train.run.log import Log
from mona_train.run.machine import Machine
from mona_train.run.metrics import MetricsLog

SHOWN = 4  # cases in the picture of a validation


class Interrupted(Exception):
    """Ctrl-C: the step was finished and saved."""


class Data:
    """What a run learns from and is measured on."""

    def __init__(self, config: Config, resolved: Resolved, cache: Cache, look: nn.Module | None = None) -> None:
        self.resolved, self.cache, self.look = resolved, cache, look
        self.split, self.task = resolved.split, resolved.task
        self._check_unlabelled(config)
        self._check_batch(config)
        cases = {case.name: case for case in resolved.cases()}
        self.val, self.test, self.labelled = (
            [cases[n] for n in names if cases[n].label] for names in (self.split.val, self.split.test, self._labelled())
        )

    def write(self, run: Path) -> None:
        """Keep in the run what it was trained on and with."""
        self.resolved.write(run)
        if self.look is not None:
            save_first_look(self.look, run)

    def _labelled(self) -> list[str]:
        """The names of the cases whose labels are used in full."""
        rows = set(self.split.labelled)
        return [case.name for case in self.cache.cases if rows.issuperset(case.rows)]

    def _check_unlabelled(self, config: Config) -> None:
        """A method that learns from unlabelled slices must have some: said before the first step."""
        stages = stages_of(config.method, config.pretrain)
        if stages[-1].unlabelled and not self.split.unlabelled:
            raise InputError(
                f"{config.method} learns from unlabelled slices too, and here every training slice has a label in use; "
                "choose --ratio 0.05 or the like, or train --method unet-f"
            )
        if config.batch.unlabelled < 1 and any(stage.unlabelled for stage in stages):
            raise InputError(f"{config.method} needs batch.unlabelled of at least 1, found {config.batch.unlabelled}")

    def _check_batch(self, config: Config) -> None:
        """Batch norm needs two values of a channel; the U-Net's deepest level may have one pixel for each slice."""
        if self.task.input_size != (STRIDE, STRIDE):
            return
        alone = any(stage.unlabelled for stage in stages_of(config.method, config.pretrain))
        batch = config.batch.unlabelled if alone else config.batch.labelled + config.batch.unlabelled
        if batch < 2:
            raise InputError(
                f"batch norm cannot work with one slice of {STRIDE}x{STRIDE}, which is a single pixel at the U-Net's "
                f"deepest level; set batch.unlabelled to 2 or more, or choose a larger window"
            )


class Session:
    def __init__(self, config: Config, folder: Path, data: Data, fabric: Fabric, *, quiet: bool = False) -> None:
        self.config, self.folder, self.data, self.fabric = config, folder, data, fabric
        resolved = data.resolved
        self.trainer = Trainer(config, data.cache, data.split, data.task, fabric, resolved.corners, resolved.levels)
        if data.look is not None:
            data.look.to(fabric.device)
        self.best: dict[str, Any] | None = None  # {"step", "dsc"} of the best validation of the last stage
        self._stop = False
        self._main = fabric.global_rank == 0
        self._quiet = quiet or not self._main
        self._position = 0  # in metrics.jsonl
        self.machine = Machine(folder if self._main else None)

    def resume(self) -> None:
        path = self.folder / "checkpoints" / "last.safetensors"
        if not path.exists():
            return  # killed before the first checkpoint: begins again
        tensors, facts = checkpoint.load(path)
        self.trainer.load(tensors, facts)
        self.best = facts["best"]
        self._position = facts["metrics"]

    def run(self, until: int | None = None) -> dict[str, Any]:
        """Train to the end; returns the results, which are also in results.json.

        until: stop after this step, with a checkpoint, as if interrupted there; the results are empty then.
        """
        with self._records() as (metrics, board, log, display), self._ctrl_c():
            log(f"step {self.trainer.number} of {self.config.steps}, seed {self.config.seed}")
            if self.config.precision != FULL:
                log(f"trained in {self.config.precision}; measured in {FULL}, as an exported model computes")
            try:
                self._train(metrics, board, display, log, until)
            except Diverged as error:
                sentence = f"{error}; {self._advice()}"
                log(sentence)
                raise CheckFailed(sentence) from error
            if not self.trainer.finished:
                log(f"stopped after step {self.trainer.number}, as asked")
                return {}
            results = self._results(display)
            self.machine.write()
            return results

    def _train(self, metrics: MetricsLog, board: Board, display: Display, log: Log, until: int | None) -> None:
        trainer, every, stage, watch = self.trainer, self.config.every, None, Watch(self.trainer.processes)
        end = self.config.steps if until is None else min(until, self.config.steps)
        while trainer.number < end:
            span = trainer.upcoming
            if span != stage:
                stage = span
                later = sum(trainer.cost(s) for s in trainer.spans if s.first >= span.stop)
                display.stage(span.stage.name, span.first, span.stop, later=later / trainer.cost(span, 1))
            losses = trainer.step()
            number = trainer.number
            watch.add(number, losses)
            last = number in (span.stop, self.config.steps)
            validating = number % every.validate == 0 or last
            if number % every.log == 0 or validating:
                watch.look(number, trainer.parts.values() if validating else ())
            if number % every.log == 0 or last:
                values = {name: float(loss) for name, loss in losses.items()}
                weights = {f"weight of {name}": weight for name, weight in trainer.weights.items()}
                metrics.write(number, stage=span.stage.name, lr=trainer.rate, **values, weights=trainer.weights)
                board.scalars(number, {**values, **weights, "lr": trainer.rate})
                display.step(number, values, trainer.rate)
            if validating:
                self._validate(number, metrics, board, display, log)
            stopping = self._stopping()
            if number % every.save == 0 or validating or stopping or number == end:
                trainer.synchronise()
                watch.look(number, trainer.parts.values())
                self._save("last", metrics)
            if stopping and not trainer.finished:
                log("interrupted")
                self.fabric.barrier()  # no process may end while the first one still saves
                raise Interrupted

    def _advice(self) -> str:
        path = self.folder / "checkpoints" / "last.safetensors"
        kept = "nothing was saved"
        if path.exists():
            kept = f"the checkpoint of step {checkpoint.load(path)[1]['step']} is kept"
        return (
            f"{kept}; lower the learning rate (optimiser.lr is {self.config.optimiser.lr:g}) in "
            f"{self.folder / 'run.toml'} and go on with `mona train --resume {self.folder}`"
        )

    def _validate(self, number: int, metrics: MetricsLog, board: Board, display: Display, log: Log) -> None:
        self.trainer.settle()
        self.trainer.synchronise()
        if not self.data.val:
            return
        if self._main:
            scored = self.scores(self.data.val)
            report = summary(scored, self.data.task)
            dsc = {name: entry["dsc"] for name, entry in report["classes"].items()}
            metrics.write(number, dsc=report["dsc"], asd=report["asd"], classes=dsc)
            board.scalars(number, {"DSC": report["dsc"], **{f"DSC {name}": value for name, value in dsc.items()}})
            self._picture(number, scored)
            in_last_stage = number > self.trainer.spans[-1].first
            better = in_last_stage and (self.best is None or report["dsc"] > self.best["dsc"])
            if better:
                self.trainer.settle(self.trainer.student)  # it may turn out to be better than its average
                self.best = {"step": number, "dsc": report["dsc"]}
                self._save("best", metrics)
            display.validated(number, report["dsc"], better)
            log(f"step {number}: validation DSC {report['dsc']:.4f}" + (", the best so far" if better else ""))
        self.fabric.barrier()

    def _picture(self, number: int, scored: list[Scored]) -> None:
        chosen = scored[:: max(1, len(scored) // SHOWN)][:SHOWN]
        montage(self.folder / "pictures" / f"step-{number:06d}.png", [s.tiles for s in chosen])

    def _save(self, name: str, metrics: MetricsLog) -> None:
        """All state in one file.  Taken at the same step of the same run it is the same file, whoever was killed."""
        if not self._main:
            return
        tensors, facts = self.trainer.state()
        facts |= {
            "best": self.best,
            "metrics": metrics.position(),
            "task": json.loads(self.data.task.to_json()),
            "predicts": self.trainer.predicts,
            "answers": "teacher" if self.config.average else "student",
        }
        checkpoint.save(self.folder / "checkpoints" / f"{name}.safetensors", tensors, facts)
        self.machine.write()

    def _results(self, display: Display) -> dict[str, Any]:
        """`last` beside `best`, on validation; test cases are scored once, with the network that validation chose."""
        path = self.folder / "results.json"
        if not self._main:
            return {}
        network = self.trainer.network
        results: dict[str, Any] = {"steps": self.config.steps, "best": self.best, "chosen": "last"}
        results["precision"] = {"trained": self.config.precision, "measured": FULL}
        results["network"] = "teacher" if self.config.average else "student"
        last = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        if self.data.val:
            display.say("measuring the last and the best network")
            results["chosen"] = "best"
            self._choose_network(results)
        self.data.task = task = self._post_process(results)
        if self.data.val:
            chosen = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            scored = self.scores(self.data.val, task, paper=True)
            results["validation"] = {"best": summary(scored, task)}
            results["cases"] = {"validation": by_case(scored, task)}
            network.load_state_dict(last)
            results["validation"] = {"last": self._measure(self.data.val, task), **results["validation"]}
            network.load_state_dict(chosen)
        if self.data.test:
            display.say("measuring on the test cases")
            scored = self.scores(self.data.test, task, paper=True)
            results["test"] = summary(scored, task)
            results["cases"] = {**results.get("cases", {}), "test": by_case(scored, task)}
        keep(network, self.data.val or self.data.test, task, self.folder / "parity.npz", self.data.look)
        write_text(path, json.dumps(results, indent=1) + "\n")
        return results

    def _choose_network(self, results: dict[str, Any]) -> None:
        """Load the best checkpoint's network: the average or the student, and of rivals (CPS trains two) the better."""
        tensors, _ = checkpoint.load(self.folder / "checkpoints" / "best.safetensors")
        stage = self.trainer.spans[-1].stage
        who = ("teacher", "student") if self.config.average else ("student",)
        states = {
            (name, which): checkpoint.unpack(f"{which}.{name}", tensors)
            for name in (stage.predicts, *stage.rivals)
            for which in who
        }
        measured = {}
        for key, state in states.items():
            self.trainer.network.load_state_dict(state)
            measured[key] = self._measure(self.data.val)["dsc"] if len(states) > 1 else 0.0
        best = max(measured, key=lambda key: measured[key])
        self.trainer.network.load_state_dict(states[best])
        results["predicts"], results["network"] = best
        if self.config.average:
            results["average"] = {which: measured[best[0], which] for which in who}
        if stage.rivals:
            results["rivals"] = {name: max(measured[name, w] for w in who) for name in (stage.predicts, *stage.rivals)}

    def _post_process(self, results: dict[str, Any]) -> Task:
        """Chosen on validation patients; without any, on those that are labelled in full, if there are any."""
        cases = self.data.val or self.data.labelled
        if not self.config.post_process or not cases:
            return self.data.task
        task, report = choose_post_processing(self.data.task, lambda task: self._measure(cases, task))
        names = {c.id: c.name for c in task.classes}
        chosen = {rule: [names[label] for label in getattr(task, rule)] for rule in RULES}
        results["post_processing"] = {**chosen, "gains": report, "on": "validation" if self.data.val else "labelled"}
        return task

    def scores(self, cases: list[Case], task: Task | None = None, *, paper: bool = False) -> list[Scored]:
        """Of the network as it is now, with the Task that the run ended with, or another."""
        task, look = task or self.data.task, self.data.look
        return validate(self.trainer.network, cases, task, self.fabric.device, look, paper=paper)

    def _measure(self, cases: list[Case], task: Task | None = None) -> dict[str, Any]:
        return summary(self.scores(cases, task), self.data.task)

    @contextlib.contextmanager
    def _records(self) -> Iterator[tuple[MetricsLog, Board, Log, Display]]:
        """What a run writes as it goes; processes other than the first write nowhere."""
        folder = self.folder if self._main else None
        if folder:
            clear(folder)
        metrics, number = MetricsLog(folder / "metrics.jsonl" if folder else None), self.trainer.number
        metrics.truncate(self._position)
        board, log = Board(folder, purge=number), Log(folder / "log.txt" if folder else None)
        best = (self.best["step"], self.best["dsc"]) if self.best else None
        with Display(self.config.steps, first=number, best=best, quiet=self._quiet) as display:
            try:
                yield metrics, board, log, display
            finally:
                metrics.close()
                board.close()

    @contextlib.contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """The first Ctrl-C lets the step finish; the second ends at once."""

        def stop(*_: Any) -> None:
            self._stop = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _stopping(self) -> bool:
        """Processes are interrupted at different moments and must stop after the same step."""
        if self.trainer.processes.size == 1:
            return self._stop
        flag = torch.tensor([float(self._stop)], device=self.fabric.device)
        return bool(self.trainer.processes.total(flag) > 0)
