"""Methods: each a sequence of stages, each stage a small class in a file of its own.

A new method is a file with a `Stage` in it and a line in METHODS.
"""

from mona_infer.errors import InputError
from mona_train.methods.acr import ACR
from mona_train.methods.base import Stage
from mona_train.methods.glcon import GLCon
from mona_train.methods.mean_teacher import MeanTeacher
from mona_train.methods.supervised import Supervised

METHODS: dict[str, tuple[type[Stage], ...]] = {
    "mona": (GLCon, ACR),
    "glcon": (GLCon,),
    "unet-f": (Supervised,),
    "unet-l": (Supervised,),
    "mean-teacher": (MeanTeacher,),
}
ALL_LABELS = ("unet-f",)  # use every label there is, whatever --ratio says
PRETRAINING: dict[str, type[Stage]] = {"glcon": GLCon}


def stages_of(method: str, pretrain: str = "default") -> tuple[type[Stage], ...]:
    """The stages of a method, its pre-training kept ("default"), left out ("none") or replaced."""
    if method not in METHODS:
        import difflib

        close = difflib.get_close_matches(method, METHODS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"unknown method {method!r}; {hint}choose one of {', '.join(METHODS)}")
    stages = METHODS[method]
    if pretrain == "default":
        return stages
    if pretrain != "none" and pretrain not in PRETRAINING:
        choices = " or ".join(repr(name) for name in ("none", *PRETRAINING))
        raise InputError(f"unknown pre-training {pretrain!r}; choose {choices}")
    return (*([PRETRAINING[pretrain]] if pretrain != "none" else []), stages[-1])
