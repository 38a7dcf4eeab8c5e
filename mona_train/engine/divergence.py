"""Training that has diverged is stopped before anything of it is logged, evaluated or saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from mona_train.engine.distributed import Distributed

NEVER = float("inf")


class Diverged(Exception):
    """A loss or a weight is no longer finite; raised in every process after the same step."""

    def __init__(self, step: int, what: str) -> None:
        super().__init__(f"training diverged at step {step}: {what}")


class Watch:
    """Losses stay on the device and are checked together from time to time, so that no step has to wait for the GPU."""

    def __init__(self, processes: Distributed) -> None:
        self._processes = processes
        self._unchecked: list[tuple[int, str, Tensor]] = []

    def add(self, step: int, losses: Mapping[str, Tensor]) -> None:
        self._unchecked += [(step, f"the loss '{name}' is {{}}", loss) for name, loss in losses.items()]

    def look(self, step: int, networks: Iterable[nn.Module] = ()) -> None:
        """Check the losses since the last call; before a network is evaluated or saved, also its weights."""
        values, messages = [loss.detach().float() for _, _, loss in self._unchecked], [m for _, m, _ in self._unchecked]
        steps = [n for n, _, _ in self._unchecked]
        self._unchecked.clear()
        tensors = [t for network in networks for t in network.state_dict().values() if t.is_floating_point()]
        if tensors:
            # Norms overflow before weights do.  A sum keeps a NaN, which a maximum may lose.
            values.append(torch.stack([norm.float() for norm in torch._foreach_norm(tensors)]).sum())
            messages.append("the weights are no longer finite numbers")
            steps.append(step)
        if not values:
            return
        found = torch.stack(values)
        bad = torch.nonzero(~found.isfinite()).flatten().tolist()[:1]
        mine = [float(steps[bad[0]]), float(bad[0]), float(found[bad[0]])] if bad else [NEVER, 0.0, 0.0]
        # Each process has its own losses, with the same names; all must stop, and the first process reports why.
        rows = self._processes.gather(torch.tensor([mine], dtype=torch.float64, device=found.device)).tolist()
        first, at, value = min(rows, key=lambda row: row[0])
        if first < NEVER:
            raise Diverged(int(first), messages[int(at)].format(value))
