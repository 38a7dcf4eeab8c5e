"""The functions registered for CUDA tensors, called as torch would call them, against those for the CPU."""

import pytest
import torch
from helpers.triton_device import INTERPRETED
from kernels.test_registration import calls
from torch._library.custom_ops import OPDEFS
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="on a GPU every other test goes through them")


@pytest.mark.parametrize("op", ["census", "draw_keys", "class_sums", "pyramid_gather", "contrast", "equivariance"])
def test_as_on_the_cpu(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.Tensor] = []
    device_of = torch.cuda.device_of
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: entered.append(tensor) or device_of(tensor))
    for registered, arguments in calls(op):
        name = registered.name().partition(".")[0]
        with torch.no_grad():
            found, expected = OPDEFS[name]._backend_fns["cuda"](*arguments), registered(*arguments)
        assert entered.pop() is tree_leaves(arguments)[0]  # launched on the device of its tensors
        for a, b in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)
