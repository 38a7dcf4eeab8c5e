"""The numbers that the paper prints, and which measured row stands beside which of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mona_train.bench.reading import Measured

# as they are written in tables, by their --method
TITLES = {
    "unet-f": "UNet-F",
    "unet-l": "UNet-L",
    "em": "EM",
    "cct": "CCT",
    "dan": "DAN",
    "urpc": "URPC",
    "dct": "DCT",
    "simcvd": "SimCVD",
    "mms": "MMS",
    "ict": "ICT",
    "mean-teacher": "MT",
    "uamt": "UAMT",
    "cps": "CPS",
    "gcl": "GCL",
    "scs": "SCS",
    "plc": "PLC",
    "mona": "MONA",
    "fixmatch": "FixMatch",
    "unimatch": "UniMatch",
    "bcp": "BCP",
    "moco": "MoCov2",
    "knn-moco": "kNN-MoCo",
    "simclr": "SimCLR",
    "byol": "BYOL",
    "isd": "ISD",
    "glcon": "GLCon",
}
FRAMEWORKS = ("moco", "knn-moco", "simclr", "byol", "isd", "glcon")
MAIN = {"acdc": ("acdc_lits_main", "ACDC"), "lits": ("acdc_lits_main", "LiTS"), "mmwhs": ("mmwhs_main", "MMWHS")}
TABLES = (*MAIN, "components", "frameworks", "principles", "augmentation")
DATASETS = {"acdc": "ACDC", "lits": "LiTS", "mmwhs": "MM-WHS", "Task04_Hippocampus": "Hippocampus"}
ALL_LABELS = "unet-f"  # trained on every label, whatever the ratio of its rivals


@dataclass(frozen=True)
class Published:
    """One printed cell, and what a measured row must be to stand beside it; None: whatever it is."""

    table: str  # as in `mona bench TABLE`
    name: str  # as printed
    dataset: str
    ratio: float
    dsc: float  # from 0 to 1
    asd: float  # in voxels, though the paper says mm (docs/evaluate.md)
    method: str
    pretrain: str | None = None
    principles: frozenset[str] | None = None
    views: tuple[str, str] | None = None  # student's and teacher's augmentation

    def fits(self, row: Measured) -> bool:
        """Whether the row is this cell's; the table that it was run for is not asked."""
        return (
            (row.dataset, row.method) == (self.dataset, self.method)
            and self.pretrain in (None, row.pretrain)
            and self.principles in (None, frozenset(row.principles))
            and self.views in (None, (row.student, row.teacher))
            and (row.method == ALL_LABELS or (row.ratio is not None and abs(row.ratio - self.ratio) < 1e-9))
        )


@cache
def published() -> tuple[Published, ...]:
    """All printed cells of the paper's result tables."""
    tables = json.loads(files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    by_title = {title: method for method, title in TITLES.items()}
    cells = []
    for table, (key, dataset) in MAIN.items():
        for name, ratio, cell in _by_ratio(tables[key][dataset]):
            cells.append(Published(table, name, table, *_numbers(ratio, cell), by_title[name]))
    for name, cell in tables["component_ablation"]["rows"].items():
        cells.append(Published("components", name, "acdc", *_numbers("5%", cell), *_after(None, name)))
    for group, rows in tables["cl_comparsion"]["rows"].items():
        for name, ratio, cell in _by_ratio(rows):
            stage, numbers = _framework(name), _numbers(ratio, cell)
            if group == "only_pretraining":
                cells.append(Published("frameworks", f"{name}, pre-training only", "acdc", *numbers, stage))
            else:
                cells.append(Published("frameworks", f"{name}, fine-tuned", "acdc", *numbers, "mona", stage))
    for framework, combinations in tables["cl_principle_comparsion"]["rows"].items():
        for name, ratio, cell in _by_ratio(combinations):
            match = _after(_framework(framework), name)
            cells.append(Published("principles", f"{framework}, {name}", "acdc", *_numbers(ratio, cell), *match))
    for dataset, rows in tables["aug_ablation"]["rows"].items():
        for cell in rows:
            views = cell["student"], cell["teacher"]
            name = f"student {views[0]}, teacher {views[1]}"
            numbers = _numbers("5%", cell)
            cells.append(Published("augmentation", name, dataset.lower(), *numbers, "mona", views=views))
    return tuple(cells)


def beside(row: Measured, table: str) -> Published | None:
    """The printed cell of this table that a row stands beside; of an own list, that of the data set's main table."""
    known = table
    if table not in TABLES:
        known = "" if row.settings else row.dataset  # a variant of a method is not what the paper measured
    return next((cell for cell in published() if cell.table == known and cell.fits(row)), None)


def _numbers(ratio: str, cell: dict[str, float]) -> tuple[float, float, float]:
    return round(float(ratio.rstrip("%")) / 100, 4), round(cell["dsc"] / 100, 5), cell["asd"]


def _after(framework: str | None, name: str) -> tuple[str, str | None, frozenset[str] | None]:
    """ "Vanilla" is pre-training without fine-tuning (method 4.6); else MONA with the principles that are named."""
    if name == "Vanilla":
        return framework or "glcon", None, None
    inside = name.partition("(")[2].rstrip(")") or name  # "MONA (tailness + ...)"
    return "mona", framework, frozenset(inside.split(" + "))


def _framework(name: str) -> str:
    return "glcon" if name == "MONA" else {TITLES[f]: f for f in FRAMEWORKS}[name]


def _by_ratio(rows: dict[str, dict[str, dict[str, float]]]) -> Iterator[tuple[str, str, dict[str, float]]]:
    for name, ratios in rows.items():
        for ratio, cell in ratios.items():
            yield name, ratio, cell
