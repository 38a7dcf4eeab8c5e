"""What is known of a segmented case: one object, from which it is printed, written as JSON and shown."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mona_infer.evaluation.metrics import Score


@dataclass(frozen=True)
class ClassReport:
    """One class in one frame."""

    id: int
    voxels: int
    ml: float
    areas_mm2: list[float]  # in each slice, in the model's slice order
    confidence: float | None  # mean probability where the class was chosen; None where it was chosen nowhere


@dataclass(frozen=True)
class FrameReport:
    """One frame, or the whole of a scan that has only one."""

    classes: dict[str, ClassReport]  # by class name
    scores: dict[str, Score] | None = None  # against the reference, where there is one

    def to_json(self) -> dict[str, Any]:
        report: dict[str, Any] = {"classes": {name: asdict(entry) for name, entry in self.classes.items()}}
        if self.scores is not None:
            report["scores"] = {name: asdict(score) for name, score in self.scores.items()}
        return report

    @classmethod
    def from_json(cls, report: dict[str, Any]) -> FrameReport:
        from mona_infer.evaluation.metrics import Score

        scores = report.get("scores")
        return cls(
            {name: ClassReport(**entry) for name, entry in report["classes"].items()},
            None if scores is None else {name: Score(**entry) for name, entry in scores.items()},
        )

    def describe(self) -> str:
        parts = []
        for name, entry in self.classes.items():
            score = self.scores.get(name) if self.scores else None
            asd = f", ASD {score.asd:.2f} mm" if score and score.asd is not None else ""
            parts.append(f"{name} {entry.ml:.1f} mL" + (f" (DSC {score.dsc:.3f}{asd})" if score else ""))
        return ", ".join(parts)


@dataclass(frozen=True)
class Moment:
    frame: int
    ml: float


@dataclass(frozen=True)
class CineReport:
    """The left ventricle over a heartbeat."""

    name: str  # of the class
    end_diastole: Moment  # where it is largest
    end_systole: Moment  # where it is smallest

    @property
    def stroke_ml(self) -> float:
        return round(self.end_diastole.ml - self.end_systole.ml, 4)

    @property
    def ejection_fraction(self) -> float:
        return round((self.end_diastole.ml - self.end_systole.ml) / self.end_diastole.ml, 4)

    def to_json(self) -> dict[str, Any]:
        ends = {"ED": asdict(self.end_diastole), "ES": asdict(self.end_systole)}
        return {"class": self.name, **ends, "stroke_ml": self.stroke_ml, "ejection_fraction": self.ejection_fraction}

    def describe(self) -> str:
        ends = (("ED", self.end_diastole), ("ES", self.end_systole))
        volumes = ", ".join(f"{end} {moment.ml:.1f} mL (frame {moment.frame})" for end, moment in ends)
        return f"{self.name} {volumes}, ejection fraction {100 * self.ejection_fraction:.0f} %"


@dataclass
class CaseReport:
    """A case that was segmented; or, with an `error`, one that was not."""

    case: str
    scan: str
    mask: str | None = None
    error: str | None = None
    spacing: list[float] = field(default_factory=list)  # mm along the three stored axes
    warnings: list[str] = field(default_factory=list)
    frames: list[FrameReport] = field(default_factory=list)
    frame_times_ms: list[float] | None = None
    frame_interval_ms: float | None = None
    cine: CineReport | None = None  # None too where no class is the left ventricle

    def to_json(self) -> dict[str, Any]:
        if self.error is not None:
            return {"case": self.case, "scan": self.scan, "error": self.error}
        report: dict[str, Any] = {"case": self.case, "scan": self.scan, "mask": self.mask}
        report |= {"spacing": self.spacing, "warnings": self.warnings}
        if len(self.frames) == 1:
            return report | self.frames[0].to_json()
        times = {"frame_times_ms": self.frame_times_ms, "frame_interval_ms": self.frame_interval_ms}
        cine = self.cine.to_json() if self.cine else None
        return report | times | {"frames": [frame.to_json() for frame in self.frames], "cine": cine}

    @classmethod
    def from_json(cls, report: dict[str, Any]) -> CaseReport:
        """What `to_json` made of it; not the cine, which follows from the frames."""
        parts = report.get("frames") or ([report] if "classes" in report else [])
        plain: dict[str, Any] = {
            key: report.get(key) for key in ("mask", "error", "frame_times_ms", "frame_interval_ms")
        }
        lists: dict[str, Any] = {key: report.get(key, []) for key in ("spacing", "warnings")}
        return cls(report["case"], report["scan"], frames=[FrameReport.from_json(p) for p in parts], **plain, **lists)

    def describe(self) -> str:
        """The line that is printed of it."""
        if self.error is not None:
            return self.error
        if len(self.frames) == 1:
            return self.frames[0].describe()
        beat = self.cine.describe() if self.cine else None
        return f"{len(self.frames)} frames" + (
            f", {beat}" if beat else "; no class of this model is the left ventricle, or it is empty in every frame"
        )
