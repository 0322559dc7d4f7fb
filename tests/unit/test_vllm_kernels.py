"""Products of vLLM's layers on a processor: as many rows as have a block's bits, and sums in float32 for bfloat16."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from troth.node.engine import few_rows, wide_products  # noqa: E402
from troth.node.engine.vllm import processor_kernels  # noqa: E402
from troth.node.engine.vllm.processor_kernels import FixedRows, fix_rows, linear_layers, widen  # noqa: E402
from troth.node.engine.wide_products import FEWEST, wide_linear  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH, HEIGHT = 16, 24, 20


class Kernel:
    """Sums the other way round where it is called with `odd` rows, and remembers how many it was called with."""

    def __init__(self, odd: tuple[int, ...] = ()) -> None:
        self.odd, self.counts = odd, list[int]()

    def __call__(self, states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        self.counts.append(len(states))
        total, places = torch.zeros(len(states), len(weight)), range(states.shape[-1])
        for place in reversed(places) if len(states) in self.odd else places:
            total = total + states[:, place, None].float() * weight[None, :, place].float()
        return (total if bias is None else total + bias).to(states.dtype)


def layer_of(kernel: Any, dtype: torch.dtype, *, biased: bool = False) -> Any:
    generator = torch.Generator().manual_seed(4)
    layer: Any = torch.nn.Module()
    layer.weight = torch.nn.Parameter(torch.randn(HEIGHT, WIDTH, generator=generator).to(dtype), requires_grad=False)
    layer.bias = torch.randn(HEIGHT, generator=generator).to(dtype) if biased else None
    layer.cpu_linear = kernel
    return layer


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "_ORDERED", {})


def installed(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    """A vLLM that gives each layer this kernel, and keeps the weight in an order of its own."""

    def dispatch(layer: Any, remove_weight: bool) -> None:
        weight = layer.weight
        layer.cpu_linear = lambda states, _, bias: kernel(states, weight, bias)
        if remove_weight:
            layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)

    utils: Any = ModuleType("vllm.model_executor.layers.utils")
    utils.dispatch_cpu_unquantized_gemm = dispatch
    monkeypatch.setitem(sys.modules, utils.__name__, utils)


@pytest.mark.slow
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("odd", "count", "used"),
    [
        ((), 1, [1]),
        ((), 3, [4]),
        ((), 147, [64, 64, ROWS, ROWS]),
        ((1, 2), 1, [4]),
        ((1, 2, 4, 8), 1, [ROWS]),
        ((64,), 147, [ROWS] * 10),
    ],
)
def test_a_product_takes_as_many_rows_as_have_the_bits_of_a_block(
    odd: tuple[int, ...], count: int, used: list[int], dtype: torch.dtype, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(odd)
    installed(monkeypatch, kernel)
    layer = layer_of(kernel, dtype, biased=biased)
    fix_rows(layer, ROWS)
    states = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(9)).to(dtype)
    layer.cpu_linear(states, layer.weight, layer.bias)
    kernel.counts.clear()
    made = layer.cpu_linear(states, layer.weight, layer.bias)
    assert kernel.counts == used
    whole = torch.cat([states, states[-1:].expand(-count % ROWS, WIDTH)])
    blocks = [Kernel()(part, layer.weight, layer.bias) for part in whole.split(ROWS)]
    assert torch.equal(made, torch.cat(blocks)[:count])


def test_a_layer_computes_as_before_once_its_rows_are_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    installed(monkeypatch, kernel)
    layer = layer_of(kernel, torch.float32)
    fix_rows(layer, ROWS)
    fix_rows(layer, ROWS)
    assert isinstance(layer.cpu_linear, FixedRows)
    fix_rows(layer, 0)
    assert layer.cpu_linear is kernel


def test_what_vllm_leaves_to_torch_goes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial would look at a kernel that such a layer does not have."""
    kernel = Kernel()
    monkeypatch.setattr(torch.nn.functional, "linear", kernel)
    layer = layer_of(torch.nn.functional.linear, torch.float32)
    fix_rows(layer, ROWS)
    for _ in range(2):
        layer.cpu_linear(torch.randn(3, WIDTH), layer.weight, None)
    assert kernel.counts == [ROWS, ROWS]


@pytest.fixture
def no_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (wide_products, processor_kernels):
        monkeypatch.setattr(module, "multiplies_bfloat16", lambda: False)


@pytest.mark.usefixtures("no_instructions")
@pytest.mark.parametrize("rows", [1, FEWEST - 1, FEWEST, 30])
def test_bfloat16_without_instructions_is_summed_in_float32_and_rounded_once(rows: int) -> None:
    kernel = Kernel()
    layer = layer_of(kernel, torch.bfloat16, biased=True)
    widen(layer)
    states = torch.randn(rows, WIDTH).bfloat16()
    made = layer.cpu_linear(states, layer.weight, layer.bias)
    assert made.dtype == torch.bfloat16
    if rows < FEWEST:
        assert kernel.counts == [rows], "one or two rows read weights more than they compute"
    else:
        assert not kernel.counts
        assert torch.equal(made, wide_linear(states, layer.weight, layer.bias))
        exact = states.double() @ layer.weight.double().T + layer.bias.double()
        assert (made.double() - exact).abs().max() <= exact.abs().max() * 2**-8


@pytest.mark.parametrize("kind", ["float32", "packed", "experts", "instructions"])
def test_other_layers_keep_their_kernel(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_kernels, "multiplies_bfloat16", lambda: kind == "instructions")
    kernel = Kernel()
    layer = layer_of(kernel, torch.float32 if kind == "float32" else torch.bfloat16)
    if kind == "packed":
        layer.weight = torch.nn.Parameter(layer.weight.new_empty(0), requires_grad=False)
    if kind == "experts":
        layer.weight = torch.nn.Parameter(layer.weight.repeat(3, 1, 1), requires_grad=False)
    widen(layer)
    assert layer.cpu_linear is kernel


def test_only_layers_with_a_kernel_of_vllm_are_found() -> None:
    model: Any = torch.nn.Module()
    model.norm, model.up = torch.nn.LayerNorm(WIDTH), layer_of(Kernel(), torch.float32)
    assert linear_layers(model) == [model.up]
    assert linear_layers(SimpleNamespace(modules=list)) == []  # type: ignore[arg-type, unused-ignore]
