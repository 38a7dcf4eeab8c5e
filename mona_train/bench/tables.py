"""The paper's tables by name.  What the paper printed in them is in published.json."""

from __future__ import annotations

from mona_train.bench.grids import Grid

RATIOS = (0.01, 0.05, 0.1)
# in the order of the paper's main tables
METHODS = tuple(
    "unet-f unet-l em cct dan urpc dct simcvd mms ict mean-teacher uamt cps gcl scs plc mona".split()  # noqa: SIM905
)
FRAMEWORKS = ("moco", "knn-moco", "simclr", "byol", "isd", "glcon")
SUBSETS: tuple[str, ...] = ("", "tailness", "consistency", "diversity", "tailness,consistency", "consistency,diversity")
SUBSETS += ("tailness,diversity", "tailness,consistency,diversity")
PAIRS = ("weak/weak", "strong/weak", "weak/strong", "strong/strong")  # student/teacher

SUMMARIES = {
    "acdc": "17 methods on ACDC, with the labels of 1, 5 and 10 % of the patients",
    "mmwhs": "the same on MM-WHS (CT)",
    "lits": "the same on LiTS",
    "components": "MONA with each set of its principles after one shared pre-training, ACDC, 5 %",
    "augmentation": "weak and strong views of student and teacher, ACDC, 5 %",
    "frameworks": "six contrastive pre-trainings, alone and with MONA's fine-tuning, ACDC, 1, 5 and 10 %",
    "principles": "each set of principles after each of the six pre-trainings, ACDC, 1, 5 and 10 %",
}


def tables() -> dict[str, tuple[Grid, ...]]:
    """Everything a table does not vary is the preset's choice."""
    main = {name: (_main(name),) for name in ("acdc", "mmwhs", "lits")}
    return main | {
        "components": (Grid("components", principles=SUBSETS),),
        "augmentation": (Grid("augmentation", views=PAIRS),),
        "frameworks": (
            Grid("frameworks", methods=FRAMEWORKS, ratios=RATIOS),
            Grid("frameworks", pretrain=FRAMEWORKS, ratios=RATIOS),
        ),
        "principles": (Grid("principles", pretrain=FRAMEWORKS, principles=SUBSETS, ratios=RATIOS),),
    }


def _main(name: str) -> Grid:
    return Grid(name, datasets=(name,), methods=METHODS, ratios=RATIOS, open=True)
