"""A graphics card that is none: tensors that torch calls tensors of cuda:0, and the processor computes.

Code that no card has run fails on the first one for plain reasons: rows of the processor are added to rows of the card,
numpy is handed memory that it cannot see, whole numbers are multiplied as matrices. torch's dispatcher shows each
operation before it is computed, so all this is told here, too, and what is computed has values. What leaves the card is
counted.

What only a real card shows: its kernels' bits, its memory, its speed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
_LIBRARY = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
_GUARDS = (ctypes.c_void_p * 20).in_dll(_LIBRARY, "_ZN3c104impl26device_guard_impl_registryE")
CUDA, META = 1, 14
"""Places of devices in c10's list of who switches a thread to a device. A build for processors has nobody for CUDA; who
does it for meta, where nothing is computed, has nothing to do."""
NAME = "cuda:0"
CARD = torch.device(NAME)
PROCESSOR = torch.device("cpu")
COPIES = {aten._to_copy.default, aten.copy_.default}
"""Operations that may take tensors of both."""
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operations whose second argument, indices, may be of the processor."""
WAITED = {
    *(aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default),
    *(aten.masked_select.default, aten.bincount.default),
}
"""Operations that hand a number to the host, or whose result's shape it has to wait for."""
UNWRITTEN = {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default}
"""Operations whose memory holds what somebody left there; a processor's is zero when it is new."""
PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
"""CUDA has them for numbers with a fraction alone."""


class MixedDevices(RuntimeError):
    """What CUDA says of an operation over tensors of a card and of the processor."""

    def __init__(self, function: object) -> None:
        super().__init__(f"Expected all tensors to be on the same device, but found {NAME} and cpu! ({function})")


@dataclass
class Traffic:
    """What went between the card and the host.

    Args:
        left: bytes of each tensor that was copied to the host, in order.
        waits: how often the host waited for a number or for a shape.
    """

    left: list[int] = field(default_factory=list)
    waits: int = 0

    def clear(self) -> None:
        """Count from now on."""
        self.left.clear()
        self.waits = 0

    def leaves(self, held: torch.Tensor) -> None:
        """A tensor is copied to the host."""
        self.left.append(held.numel() * held.element_size())
        self.waits += 1


class CardTensor(torch.Tensor):
    """A tensor of the card; `held` is where its numbers are."""

    held: torch.Tensor
    traffic: Traffic

    @staticmethod
    def __new__(cls, held: torch.Tensor, traffic: Traffic) -> CardTensor:
        # A view of weights is no part of the inference that looks at them, here as there.
        with torch.inference_mode(held.is_inference()):
            made: CardTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                held.size(),
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                layout=held.layout,
                device=CARD,
            )
        made.held, made.traffic = held, traffic
        return made

    def __init__(self, held: torch.Tensor, traffic: Traffic) -> None:
        """See `__new__`."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch does with memory before the dispatcher sees it."""
        with torch._C.DisableTorchFunctionSubclass():
            if function is torch.Tensor.tolist:
                return args[0].cpu().tolist()
            if function in (torch.Tensor.numpy, torch.Tensor.__array__):
                raise TypeError(f"can't convert {NAME} device type tensor to numpy. Use Tensor.cpu() first.")
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The mode comes first; without one the test has ended."""
        raise AssertionError(f"{function} outside of `pretended_card`")

    def __repr__(self, **_: Any) -> str:
        return f"CardTensor({tuple(self.shape)}, {self.dtype})"


def _plain(values: Any) -> Any:
    return _pytree.tree_map_only(CardTensor, lambda one: one.held, values)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [one for one in _pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]


class _Generator(torch.Generator):
    """Of the card; its numbers are the processor's."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")


class _Card(TorchDispatchMode):
    """Computes what is asked of the card, and refuses what CUDA refuses."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        on_card = [one for one in _tensors((args, kwargs)) if isinstance(one, CardTensor)]
        asked = next((one for one in _pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.device)), None)
        if not on_card and asked != CARD:
            return function(*args, **kwargs)
        with self:
            # Where no gradients are kept, torch shows compound operations whole.
            parts = function.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        _require_possible(function, args, kwargs)
        if function is aten._fused_sdp_choice.default:
            return 0  # A processor's kernels are none of a card's: attention in plain operations.
        elsewhere = function is aten._to_copy.default and asked not in (None, CARD)
        if asked == PROCESSOR or (function is aten.copy_.default and not isinstance(args[0], CardTensor)):
            self._traffic.leaves(on_card[0].held)
        self._traffic.waits += function in WAITED
        if asked == CARD:
            kwargs["device"] = PROCESSOR
        made = _computed(function, _plain(args), _plain(kwargs))
        if function in UNWRITTEN and made.is_floating_point():
            made.fill_(torch.nan)
        return made if elsewhere else self._of_card(made, args, on_card)

    def _of_card(self, made: Any, args: Any, on_card: list[CardTensor]) -> Any:
        known = {id(one.held): one for one in on_card}

        def wrap(one: torch.Tensor) -> torch.Tensor:
            if id(one) in known:
                return known[id(one)]
            # What is written in place on the processor stays there.
            return one if any(one is argument for argument in args) else CardTensor(one, self._traffic)

        return _pytree.tree_map_only(torch.Tensor, wrap, made)


def _computed(function: Any, args: Any, kwargs: Any) -> Any:
    if function is aten.histc.default and not args[0].is_floating_point():
        # CUDA alone counts whole numbers.
        return function(args[0].float(), *args[1:], **kwargs).to(args[0].dtype)
    return function(*args, **kwargs)


def _require_possible(function: Any, args: Any, kwargs: Any) -> None:
    """A single number of the processor may go along with tensors of the card; so may indices."""
    given = _tensors((args, kwargs))
    on_card = [one for one in given if isinstance(one, CardTensor)]
    if function in PRODUCTS and not all(one.is_floating_point() for one in on_card):
        raise RuntimeError(f'"{function}_cuda" not implemented for {on_card[0].dtype}')
    if function in COPIES or not on_card:
        return
    indices = {id(one) for one in _tensors(args[1])} if function in INDEXED else set()
    strangers = [one for one in given if not isinstance(one, CardTensor) and id(one) not in indices]
    if any(one.dim() or one is args[0] for one in strangers):
        raise MixedDevices(function)


@contextmanager
def pretended_card(patch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    """One card, for the threads that begin in here as well; says what goes between it and the host."""
    traffic = Traffic()
    begin, guard = threading.Thread.run, _GUARDS[CUDA]

    def run(thread: threading.Thread) -> None:
        # Modes are of one thread.
        with _here(traffic):
            begin(thread)

    with patch.context() as here:
        here.setattr(torch.cuda, "_lazy_init", lambda: None)
        here.setattr(torch.cuda, "is_available", lambda: True)
        here.setattr(torch.cuda, "device_count", lambda: 1)
        named = SimpleNamespace(uuid="pretended", total_memory=80 << 30, major=9, minor=0, name="pretended")
        here.setattr(torch.cuda, "get_device_properties", lambda index=0: named)
        here.setattr(torch.cuda, "empty_cache", lambda: None)
        here.setattr(torch, "Generator", _Generator)
        here.setattr(threading.Thread, "run", run)
        _GUARDS[CUDA] = _GUARDS[META]
        try:
            with _here(traffic):
                yield traffic
        finally:
            _GUARDS[CUDA] = guard


@contextmanager
def _here(traffic: Traffic) -> Iterator[None]:
    """The card, for this thread."""
    lifting = torch._C._only_lift_cpu_tensors()
    # `torch.tensor(..., device=...)` would ask a card for memory by itself.
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Card(traffic):
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifting)
