"""What the API answers and accepts, typed; /openapi.json is made from these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ClassAnswer(BaseModel):
    id: int
    name: str
    color: str = Field(description="#rrggbb")


class ModelAnswer(BaseModel):
    name: str
    task: str
    classes: list[ClassAnswer]
    licence: str | None = None
    modality: str | None = None
    precision: str = "fp32"


class DatasetAnswer(BaseModel):
    name: str
    cases: int
    labelled: int
    classes: list[ClassAnswer]
    trains: bool = Field(description="whether `mona train` can learn from it: it has a dataset.json")


class Limits(BaseModel):
    upload_bytes: int = Field(description="of one file")
    storage_bytes: int = Field(description="of all scans together; the oldest make way for new ones")


class Info(BaseModel):
    version: str
    model: ModelAnswer | None
    models: list[str]
    dataset: DatasetAnswer | None
    training: bool = Field(description="whether training can be started here")
    limits: Limits
    dicom_seg: bool = Field(description="whether masks of DICOM scans can be had as DICOM-SEG")


class ScanAnswer(BaseModel):
    id: str
    name: str
    shape: list[int]
    spacing: list[float]
    dicom: bool
    created: str
    segmented: dict[str, Any] = Field(description="model and report of the mask; empty without one")


class JobRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["segment", "segment-case", "train"]
    scan: str | None = None
    case: str | None = None
    model: str | None = None
    ratio: float | None = Field(None, gt=0, le=1)
    preset: str | None = Field(None, pattern=r"^[a-z][a-z0-9-]{0,30}$")
    method: str | None = Field(None, pattern=r"^[a-z][a-z0-9-]{0,30}$")
    steps: int | None = Field(None, ge=1, le=10_000_000)
    seed: int | None = Field(None, ge=0, le=2**31 - 1)
    force: bool = Field(False, description="also segment a scan that is clearly not the kind the model is for")


class Created(BaseModel):
    id: str


class JobAnswer(BaseModel):
    id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: float
    message: str = Field(description="what it is at; of a failed job, why")
    refused: bool = Field(description="the scan is not the kind the model is for; `force` segments it anyway")
    created: str
    started: str | None
    ended: str | None
    scan: str | None
    case: str | None
    model: str | None
    name: str | None
    result: dict[str, Any] | None
    curve: list[dict[str, Any]] = Field(description="of a training: {step, dsc, loss}")


class CaseAnswer(BaseModel):
    name: str
    patient: str
    labelled: Literal["none", "given", "corrected"]
    predicted: bool
    doubt: float | None
    warnings: list[str]
    thumbnail: str
    scores: dict[str, float] | None = Field(None, description="DSC of the prediction against the label, by class")
    volumes: dict[str, float] | None = Field(None, description="mL of the prediction, by class")
    test: bool = False


class Saved(BaseModel):
    saved: bool = Field(description="false where the label is what it was before")
    scores: dict[str, float] | None = None


class RunAnswer(BaseModel):
    name: str
    dsc: float | None
    best_step: int | None
    curve: list[tuple[int, float]]
    finished: bool
    steps: int | None
    method: str | None
    ratio: float | None
    model: bool
    classes: dict[str, float]


class ModelChoice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    run: str | None = None
