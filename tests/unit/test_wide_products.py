"""Products in bfloat16 where a processor has no instructions for them: exact products, float32 sums, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support.tiny_decoders import tried, write_tiny_decoder  # noqa: E402

from troth.node.engine import wide_products as module  # noqa: E402
from troth.node.engine.wide_products import WORTHWHILE, wide_products  # noqa: E402

pytestmark = pytest.mark.torch

PASS = torch.zeros(1, WORTHWHILE, 4, dtype=torch.bfloat16)
Function = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the processor is that tests run on."""
    monkeypatch.setattr(module, "multiplies_bfloat16", lambda: False)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def ulps(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How many bfloat16 numbers lie between results and exact ones rounded once."""
    first, second = (one.view(torch.int16).int() for one in (found, exact.bfloat16()))
    return (first - second).abs()


CALLS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "linear": (torch.nn.functional.linear, ((9, 64), (48, 64))),
    "linear with a bias": (torch.nn.functional.linear, ((2, 9, 64), (48, 64), (48,))),
    "matmul": (torch.matmul, ((2, 3, 8, 16), (2, 3, 16, 8))),
    "@": (torch.Tensor.__matmul__, ((8, 16), (16, 8))),
    "bmm": (torch.bmm, ((3, 8, 16), (3, 16, 8))),
    "mm": (torch.mm, ((8, 16), (16, 8))),
    "addmm": (torch.addmm, ((12,), (8, 16), (16, 12))),
}


@pytest.mark.parametrize("name", CALLS)
def test_products_are_the_exact_ones_rounded_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what float32 sums leave: where an exact one lies near the middle of two numbers either may come out."""
    monkeypatch.setattr(module, "AT_ONCE", 640)
    function, shapes = CALLS[name]
    factors = [drawn(*shape).bfloat16() for shape in shapes]
    with wide_products(PASS):
        found = function(*factors)
    exact = function(*(one.double() for one in factors))
    assert found.dtype == torch.bfloat16
    assert found.shape == exact.shape
    assert (ulps(found, exact) <= (exact.abs() < 0.1).int() * 100 + 1).all()
    assert (ulps(found, exact) == 0).double().mean() > 0.98


@pytest.mark.parametrize("name", CALLS)
def test_float32_kernels_compute_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = CALLS[name]
    factors, widths = [drawn(*shape).bfloat16() for shape in shapes], []

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, called, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if called in module.WIDENED:
                widths.append({one.dtype for one in args if one is not None})
            return called(*args, **(kwargs or {}))

    with Seen(), wide_products(PASS):
        function(*factors)
    assert widths == [{torch.float32}]


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_and_float32_are_left_to_torch(rows: int) -> None:
    weight = drawn(48, 64)
    for dtype in (torch.bfloat16, torch.float32):
        states = drawn(rows if dtype == torch.bfloat16 else 9, 64).to(dtype)
        plain = torch.nn.functional.linear(states, weight.to(dtype))
        with wide_products(PASS):
            assert torch.nn.functional.linear(states, weight=weight.to(dtype)).equal(plain)


def test_a_pass_of_few_rows_or_in_float32_pays_nothing() -> None:
    assert isinstance(wide_products(PASS[:, 1:]), nullcontext)
    assert isinstance(wide_products(PASS.float()), nullcontext)
    assert not isinstance(wide_products(PASS), nullcontext)
    assert not isinstance(wide_products(PASS[:, :1], 1), nullcontext)


def test_a_processor_with_instructions_computes_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "multiplies_bfloat16", lambda: True)
    assert isinstance(wide_products(PASS), nullcontext)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
async def test_models_slice_decode_and_pack_with_them(family: str, tmp_path: Path) -> None:
    """Their own code, attention in plain operations and experts included."""
    found = await tried(write_tiny_decoder(family, tmp_path / "tiny", torch.bfloat16), 1, [2])
    assert all(found), found
