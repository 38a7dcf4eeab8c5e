"""The loss and the gradient of the queries in all modes, against the reference and its autograd."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.triton_device import DEVICE, here

from mona_kernels.ops.contrast import reference, triton


def setting(
    mode: str, classes: int = 3, each: int = 5, dim: int = 21, ring: int = 7, count: int = 9, seed: int = 0
) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Queries of any length, rings half full, slots beyond what is filled poisoned."""
    g = torch.Generator().manual_seed(seed)
    queries = torch.randn(classes, each, dim, generator=g) * torch.rand(classes, each, 1, generator=g).mul(9).exp()
    filled = torch.randint(1, ring + 1, (classes,), generator=g)
    rings = F.normalize(torch.randn(classes, ring, dim, generator=g), dim=2)
    rings[torch.arange(ring) >= filled[:, None]] = 1e4 if mode == "expected" else torch.nan
    law = torch.rand(classes, classes, generator=g).fill_diagonal_(0) if classes > 1 else torch.ones(1, 1)
    sets = each if mode == "exact" else 1
    v = torch.multinomial(law, sets * count, replacement=True, generator=g)
    slot = (torch.rand(v.shape, generator=g) * filled[v]).long()
    drawn = (v * ring + slot).view(classes, sets, count)
    keys = {"law": law, "filled": filled, "count": count} if mode == "expected" else {"drawn": drawn}
    tensors = [queries, torch.ones(classes, dtype=torch.bool), torch.randn(classes, dim, generator=g) * 3, rings]
    return tensors, keys


def assert_same(mode: Any, tensors: list[torch.Tensor], keys: dict[str, Any], temperature: float = 0.5) -> torch.Tensor:
    queries, active, positives, rings = here(*tensors)
    keys = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in keys.items()}
    wide = queries.detach().float().requires_grad_()
    rest = {"temperature": temperature, "mode": mode, **keys}
    # NaN beyond the drawn keys is for the kernel, which must not read it; the reference multiplies before it chooses.
    expected = reference.contrast(wide, active, positives, rings.float().nan_to_num(), **rest)
    found, saved = triton.contrast(queries, active, positives, rings, **rest)
    assert found.shape == () and found.dtype == torch.float32
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)
    grad = torch.tensor(1.7, device=DEVICE)
    ours = triton.contrast_backward(grad, saved, queries, active, positives, rings, **rest)
    (theirs,) = torch.autograd.grad(expected, wide, grad)
    assert ours.shape == queries.shape and ours.dtype == queries.dtype
    scale = theirs.abs().max().clamp_min(1e-30)
    torch.testing.assert_close(ours.float() / scale, theirs / scale, rtol=4 * torch.finfo(ours.dtype).eps, atol=1e-5)
    return ours


@pytest.mark.parametrize("mode", reference.MODES)
@pytest.mark.parametrize(
    "types",
    [(torch.float32, torch.float32), (torch.float32, torch.bfloat16), (torch.bfloat16,) * 2, (torch.float16,) * 2],
)
def test_modes_and_types(mode: str, types: tuple[torch.dtype, torch.dtype]) -> None:
    (queries, active, positives, rings), keys = setting(mode)
    queries = F.normalize(queries, dim=2) * 4 if types[0] == torch.float16 else queries
    assert_same(mode, [queries.to(types[0]), active, positives, rings.to(types[1])], keys)


@pytest.mark.parametrize("mode", reference.MODES)
def test_several_tiles_of_queries_keys_and_embedding(mode: str) -> None:
    """More of each than any block holds, none a multiple of it; the first row, which nobody drew, poisoned."""
    each = 2 if mode == "exact" else 19
    tensors, keys = setting(mode, classes=3, each=each, dim=270, ring=60, count=141)
    tensors[3][0, 0] = torch.nan
    if mode == "expected":
        tensors[3][0] = torch.nan
        keys["law"][:, 0] = keys["filled"][0] = 0
    else:
        keys["drawn"][keys["drawn"] == 0] = 60  # the next ring's first
    assert_same(mode, tensors, keys)


@pytest.mark.parametrize("mode", reference.MODES)
def test_some_class_or_none_is_active(mode: str) -> None:
    tensors, keys = setting(mode)
    tensors[1][1] = False
    if "drawn" in keys:
        keys["drawn"][1] = -1
    tensors[0][1] = 0  # what a gather gives for no pixel
    assert not assert_same(mode, tensors, keys)[1].any()
    tensors[1][:] = False
    assert not assert_same(mode, tensors, keys).any()
    tensors[0][:] = torch.nan
    queries, active, positives, rings = here(*tensors)
    keys = {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in keys.items()}
    loss, _ = triton.contrast(queries, active, positives, rings, temperature=0.5, mode=mode, **keys)  # type: ignore[arg-type]
    assert loss == 0


@pytest.mark.parametrize("mode", reference.MODES)
def test_one_class_one_query_one_key_any_strides_and_a_sharp_temperature(mode: str) -> None:
    assert_same(mode, *setting(mode, classes=1, each=1, dim=1, ring=1, count=1))
    (queries, active, positives, rings), keys = setting(mode, dim=20)
    turned = queries.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    twice = rings.repeat_interleave(2, 2)[:, :, ::2]
    assert_same(mode, [turned, active, positives.T.contiguous().T, twice], keys, temperature=0.02)


def test_modes_lack_nothing() -> None:
    tensors, _ = setting("shared")
    with pytest.raises(ValueError, match="its arguments are missing"):
        triton.contrast(*here(*tensors), temperature=0.5, mode="expected")
