"""Training that has diverged is stopped before it is logged, measured or saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from mona_train.engine.distributed import World

NEVER = float("inf")


class Diverged(Exception):
    """A loss or a weight is not a finite number any more; known in every process after the same step."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"training diverged at step {step}: {what}")


class Watch:
    """Losses are kept on the device and looked at together now and then: a GPU is not waited for at every step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._unseen: list[tuple[int, str, Tensor]] = []

    def add(self, step: int, losses: Mapping[str, Tensor]) -> None:
        self._unseen += [(step, f"the loss '{name}' is {{}}", loss) for name, loss in losses.items()]

    def look(self, step: int, networks: Iterable[nn.Module] = ()) -> None:
        """At the losses since the last look; before a network is measured or saved, at its weights too."""
        values, words = [loss.detach().float() for _, _, loss in self._unseen], [w for _, w, _ in self._unseen]
        steps = [n for n, _, _ in self._unseen]
        self._unseen.clear()
        tensors = [t for network in networks for t in network.state_dict().values() if t.is_floating_point()]
        if tensors:
            # Norms overflow before weights do.  Their sum keeps a NaN, which a maximum may lose.
            values.append(torch.stack([norm.float() for norm in torch._foreach_norm(tensors)]).sum())
            words.append("the weights are no longer finite numbers")
            steps.append(step)
        if not values:
            return
        found = torch.stack(values)
        bad = torch.nonzero(~found.isfinite()).flatten().tolist()[:1]
        mine = [float(steps[bad[0]]), float(bad[0]), float(found[bad[0]])] if bad else [NEVER, 0.0, 0.0]
        # Each process has losses of its own, by the same names; all must stop, and the first process says why.
        rows = self._world.gather(torch.tensor([mine], dtype=torch.float64, device=found.device)).tolist()
        first, at, value = min(rows, key=lambda row: row[0])
        if first < NEVER:
            raise Diverged(int(first), words[int(at)].format(value))
