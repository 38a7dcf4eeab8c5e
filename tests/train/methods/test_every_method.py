"""What holds for every method and pre-training in the registry: it learns, resumes, runs in two processes, exports."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.every_method import EXPORTED, config_of, every, names, stages
from helpers.launching import PATIENCE, TORCHRUN
from helpers.small_runs import train, trainer_of, write_dataset
from helpers.train_commands import DATA, SMALL, mona, setting
from helpers.trainers import state_hash

from mona_train.methods.registry import method_named, methods, pretraining, stages_of
from mona_train.networks.unet import UNet
from mona_train.run import checkpoint

SCRIPT = Path(__file__).parents[2] / "helpers" / "every_method.py"
EVERY = every(names())


@pytest.mark.parametrize("name", EVERY)
def test_resumed_in_every_stage_it_ends_in_the_same_state(name: str, tmp_path: Path) -> None:
    config, file = config_of(name), tmp_path / "last.safetensors"
    straight = train(trainer_of(config))
    trainer = trainer_of(config)
    for number in sorted({n for span in trainer.spans for n in ((span.first + span.stop) // 2, span.stop)}):
        train(trainer, number)
        checkpoint.save(file, *trainer.state())
        trainer = trainer_of(config)
        trainer.load(*checkpoint.load(file))
    assert trainer.finished and state_hash(trainer) == state_hash(straight)


@pytest.mark.parametrize("name", EVERY)
def test_losses_are_finite_and_every_network_that_learns_changes(name: str) -> None:
    trainer = trainer_of(config_of(name, steps=24))
    for span in trainer.spans:
        trainer.prepare_step()
        before = {key: p.detach().clone() for key, p in trainer.student.named_parameters()}
        seen: set[str] = set()
        while trainer.number < span.stop:
            losses = trainer.step()
            seen |= set(losses)
            assert all(math.isfinite(float(loss)) for loss in losses.values()), (span.stage.name, losses)
        changed = {key.partition(".")[0] for key, p in trainer.student.named_parameters() if not p.equal(before[key])}
        assert span.stage.predicts in changed and seen


@pytest.mark.parametrize("name", EVERY)
def test_what_predicts_is_the_same_plain_unet(name: str) -> None:
    trainer = trainer_of(config_of(name))
    trainer.number = trainer.spans[-1].first
    trainer.prepare_step()
    for network in (trainer.answering[n] for n in (trainer.predicts, *trainer.stage.rivals)):
        assert type(network) is UNet
        assert network.eval()(torch.zeros(1, 1, 32, 32)).logits.shape == (1, 4, 32, 32)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each process had at the end of every method."""
    file = tmp_path_factory.mktemp("two") / "found"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TORCHRUN, str(SCRIPT), str(file)], env=environment, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    first, second = (json.loads(Path(f"{file}.{rank}").read_text()) for rank in range(2))
    return first, second


@pytest.mark.full
@pytest.mark.xdist_group("two processes")  # all methods are trained at once, in one worker
@pytest.mark.parametrize("name", names())
def test_two_processes_agree_on_weights_and_memory(name: str, two_processes: tuple[dict, dict]) -> None:
    first, second = two_processes
    assert first[name] == second[name]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_dataset(folder / "hearts")
    return folder


@pytest.mark.xdist_group("export of every method")
@pytest.mark.parametrize("name", every(names(), EXPORTED))
def test_an_exported_model_gives_the_masks_of_the_run(name: str, place: Path) -> None:
    """Logits too, because networks of a few steps may all say "background"."""
    method, pretrain = stages(name)
    queues = {f"{stage.name}.queue": "8" for stage in stages_of(method, pretrain) if "moco" in stage.name}
    values = {**SMALL, "batch.labelled": "2", "batch.unlabelled": "6", "every.validate": "4", **queues}
    words = ("--ratio", "0.4", "--steps", "12", "--method", method, "--pretrain", pretrain, *setting(values))
    done = mona(place, *DATA, *words, "--out", f"runs/{name}")
    assert done.code == 0, done.err
    done = mona(place, "export", f"runs/{name}")
    assert done.code == 0, done.err
    certificate = json.loads((place / "runs" / name / "model.certificate.json").read_text())
    assert certificate["passed"] and certificate["voxels_changed"] == 0
    assert certificate["largest_logit_difference"] < 1e-3
    results = json.loads((place / "runs" / name / "results.json").read_text())
    last = stages_of(method, pretrain)[-1]
    assert results["predicts"] in (last.predicts, *last.rivals)


def test_every_method_says_who_published_it() -> None:
    for method in methods().values():
        assert method.paper and 2014 < method.year < 2027 and method.summary and len(method.summary) < 100
        assert not method.shares or (
            len(method.shares) == len(method.stages) and sum(method.shares) == pytest.approx(1)
        )
    for name in pretraining():
        assert stages_of("mona", name)[0].name == name


def test_stages_have_names_of_their_own() -> None:
    kinds = {stage for method in methods().values() for stage in method.stages} | set(pretraining().values())
    assert len({kind.name for kind in kinds}) == len(kinds)
    assert method_named("mona").stages[-1].name == "acr"
