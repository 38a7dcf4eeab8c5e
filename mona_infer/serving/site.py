"""Everything behind the requests, in one place: what there is, what is to be done, and who does it."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.geometry.align import on_grid_of
from mona_infer.io.formats import SEG
from mona_infer.io.nifti import write_nifti
from mona_infer.io.nrrd_write import nrrd_writer
from mona_infer.io.read import label_ids, read_volume
from mona_infer.segmenting.statistics import scores_of
from mona_infer.serving.advised import FILE, advised_first
from mona_infer.serving.dataset import Case, Dataset
from mona_infer.serving.jobs import SEGMENT, Job, Jobs
from mona_infer.serving.models import Models
from mona_infer.serving.predictions import Candidate, Order, Prediction, Predictions, doubtful_first, label_mark
from mona_infer.serving.runs import Runs
from mona_infer.serving.scans import MASK, STORAGE, Scan, Scans
from mona_infer.serving.segmenting_lane import SegmentingLane
from mona_infer.serving.state import State
from mona_infer.serving.thumbnails import Thumbnails
from mona_infer.serving.training_lane import TrainingLane
from mona_infer.task import LabelClass
from mona_infer.volume import Volume

log = logging.getLogger("mona.serve")


@dataclass(frozen=True)
class Options:
    dataset: Path | None = None
    model: Path | None = None
    runs: Path = Path("runs")
    engine: str = "auto"
    threads: int = 0
    keep_names: bool = False
    storage: int = STORAGE


class Site:
    def __init__(self, state: State, options: Options, *, order: Order = doubtful_first) -> None:
        self.state, self.options = state, options
        advice = state.folder / FILE
        self.order = advised_first(advice, order)
        self.models = Models(state, options.model, options.runs, engine=options.engine, threads=options.threads)
        self.dataset = Dataset(options.dataset, keep_names=options.keep_names) if options.dataset is not None else None
        self.models.use_only_for(self.dataset.classes if self.dataset is not None else None)
        self.jobs = Jobs(state)
        self.scans = Scans(state, keep_names=options.keep_names, storage=options.storage, wanted=self.jobs.scans)
        self.runs = Runs(options.runs, options.dataset)
        self.predictions, self.thumbnails = Predictions(state), Thumbnails(state)
        self.lanes = [
            SegmentingLane(self.jobs, self.models, self.scans, self.predictions, self.dataset),
            TrainingLane(self.jobs, self.dataset, self.runs, state.jobs, advice),
        ]

    def open(self) -> None:
        for lane in self.lanes:
            lane.start()

    def close(self, seconds: float = 90.0) -> None:
        """Stop at the next slice or step; what is not finished waits on disk for the next server."""
        self.jobs.close()
        for lane in self.lanes:
            lane.join(seconds)

    @property
    def can_train(self) -> bool:
        """Asked without importing it: torch takes seconds and hundreds of megabytes."""
        return self.dataset is not None and self.dataset.trains and importlib.util.find_spec("torch") is not None

    def classes(self) -> tuple[LabelClass, ...]:
        """What labels may hold: the data set's classes, else the model's."""
        if self.dataset is not None and (classes := self.dataset.classes) is not None:
            return classes
        return self.models.model().task.classes

    # scans

    def segment(self, scan: Scan, model: str | None, *, force: bool = False) -> Job:
        self.models.model(model)  # a model that is not there is told now
        model = model or self.models.current
        return self.jobs.submit(SEGMENT, {"scan": scan.id, "name": scan.name, "model": model, "force": force})

    def mask_volume(self, scan: Scan, *, origin: bool = False) -> Volume:
        """The mask on the scan itself: in its geometry to the last digit."""
        mask = read_volume(self.scans.path(scan, MASK))
        volume = self.scans.volume(scan, origin=origin)
        return volume.with_voxels(label_ids(on_grid_of(mask, volume)))

    def write_mask(self, scan: Scan, path: Path) -> None:
        """In the format of the path's ending."""
        name = scan.segmented["model"]
        model = self.models.model(name)
        if path.suffix == SEG:
            from mona_infer.io.dicom.segmentation.write import check_origin, write_seg

            volume = self.mask_volume(scan, origin=True)
            check_origin(volume)
            if model.seal != scan.segmented["seal"]:
                raise InputError("the model has changed since; segment the scan again")
            write_seg(path, volume, model)
        else:
            write_labels(path, self.mask_volume(scan), model.task.classes)

    # cases

    def case_image(self, case: Case) -> Path:
        """The case's scan as .nii.gz, which browsers read: converted once if it is something else."""
        if case.image.name.endswith(".nii.gz"):
            return case.image
        path = self.state.thumbnails / f"{case.key}.nii.gz"
        if not path.exists():
            write_nifti(path, read_volume(case.image))
        return path

    def case_label(self, case: Case, path: Path) -> None:
        """The label on its scan's grid, in the file order of what `case_image` gives."""
        assert self.dataset is not None
        image = self.dataset.image(case)
        label = self.dataset.label(case, image)
        assert label is not None
        write_nifti(path, image.with_voxels(label_ids(label)), intent="label")

    def seal(self, model: str | None = None) -> str | None:
        return self.models.model(model).seal if (model or self.models.current) is not None else None

    def prediction(self, case: Case, model: str | None = None) -> Prediction | None:
        return self.predictions.of(case, self.seal(model))

    def ordered(self) -> list[Candidate]:
        """Every case, the one to look at next first."""
        if self.dataset is None:
            return []
        saved, seal = self.dataset.saved(), self.seal()
        return self.order([
            Candidate(case, self.dataset.labelled(case, saved), self.predictions.of(case, seal))
            for case in self.dataset.cases().values()
        ])  # fmt: skip

    def scores(self, case: Case) -> dict[str, float] | None:
        """DSC of the prediction, against the label as it is now."""
        found = self.prediction(case)
        if found is None or case.label is None or self.dataset is None:
            return None
        if found.label_mark == label_mark(case):
            return found.scores
        image = self.dataset.image(case)
        label, mask = self.dataset.label(case, image), on_grid_of(read_volume(found.mask), image)
        assert label is not None
        measured = scores_of(label_ids(mask), label, self.classes())
        report = found.report | {"scores": {name: {"dsc": score.dsc} for name, score in measured.items()}}
        self.predictions.keep(case, str(self.seal()), report)
        return {name: score.dsc for name, score in measured.items()}

    def thumbnail(self, case: Case) -> Path:
        """With its label if it has one, else with the prediction."""
        found = self.prediction(case)
        label = case.label if case.label is not None and case.label.is_file() else None
        mask = label or (found.mask if found is not None else None)
        return self.thumbnails.of(case.key, case.image, mask, self.classes() if mask is not None else NO_CLASSES)


NO_CLASSES = (LabelClass(0, "background", (0, 0, 0)), LabelClass(1, "any", (255, 255, 255)))


def write_labels(path: Path, mask: Volume, classes: Iterable[LabelClass], *, packed: bool = True) -> None:
    if path.name.endswith(".nrrd"):
        with nrrd_writer(path, mask, classes=tuple(classes), packed=packed) as write:
            write(mask)
    else:
        write_nifti(path, mask, intent="label")
