"""Losses and weights that stop being numbers are found, also where only another process has them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mona_train.engine.distributed import SingleProcess
from mona_train.engine.divergence import Diverged, Watch

NAN, INF = torch.tensor(float("nan")), torch.tensor(float("inf"))
ONE = torch.tensor(1.0)


class Beside(SingleProcess):
    """Another process stands beside this one, with a row of its own."""

    size = 2

    def __init__(self, other: list[float]) -> None:
        self.other = torch.tensor([other], dtype=torch.float64)

    def gather(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, self.other])


def watched(processes: SingleProcess | None = None) -> Watch:
    watch = Watch(processes or SingleProcess())
    watch.add(4, {"supervised": ONE, "global": ONE})
    return watch


@pytest.mark.parametrize(("value", "word"), [(NAN, "nan"), (INF, "inf"), (-INF, "-inf")])
def test_the_first_bad_step_and_its_loss_are_named(value: Tensor, word: str) -> None:
    watch = watched()
    watch.add(5, {"supervised": ONE, "global": value})
    watch.add(6, {"supervised": NAN, "global": NAN})
    with pytest.raises(Diverged, match=rf"^training diverged at step 5: the loss 'global' is {word}$"):
        watch.look(6)


def test_finite_losses_are_looked_at_once() -> None:
    watch = watched()
    watch.look(4)
    watch.look(4)  # nothing new
    watch.add(5, {"supervised": NAN})
    with pytest.raises(Diverged, match="step 5"):
        watch.look(5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])  # squared, the last is beyond float32
def test_weights_are_looked_at_before_they_are_saved(value: float) -> None:
    network = nn.BatchNorm2d(3)
    watched().look(4, [network])
    network.running_var[1] = value  # buffers too: validation reads them
    watched().look(4)  # losses alone
    watch = watched()
    watch.look(4)
    with pytest.raises(Diverged, match="step 4: the weights are no longer finite numbers"):
        watch.look(4, [network])


def test_what_another_process_has_stops_this_one() -> None:
    watch = watched(Beside([3.0, 1.0, float("nan")]))
    with pytest.raises(Diverged, match="step 3: the loss 'global' is nan"):
        watch.look(4)
    watched(Beside([float("inf"), 0.0, 0.0])).look(4)
