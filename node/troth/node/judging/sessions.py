"""What is judged: a segment of an order, and what a verifier was given and computed of it."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from troth.protocol.market.types import ExecutionClass
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype
from troth.protocol.types import Hash32, Segment


class JudgedSegment(Protocol):
    """Which segment of which order is judged. Only who judges the first or the last one is shown the ``request``."""

    @property
    def execution_class(self) -> ExecutionClass: ...
    @property
    def layers(self) -> Segment: ...
    @property
    def dtype(self) -> Dtype: ...
    @property
    def is_last(self) -> bool: ...
    @property
    def prompt_positions(self) -> int: ...
    @property
    def request(self) -> Request: ...
    @property
    def noise_seed(self) -> Hash32: ...


class JudgedSession(Protocol):
    """A verifier's session: what it was given and what it computed."""

    @property
    def seat(self) -> JudgedSegment: ...
    @property
    def tokens(self) -> tuple[int, ...]: ...
    def all_inputs(self) -> NDArray[Any]: ...
    def all_outputs(self) -> NDArray[Any]: ...
