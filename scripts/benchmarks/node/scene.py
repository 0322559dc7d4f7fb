"""What node and scheduler of the benchmark have in common: keys, orders, and sessions at the end of their prompts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from troth.node.orders.session import SegmentSession
from troth.protocol.hashing import keccak256
from troth.protocol.market.rows import RowHashes, travel_as_hashes
from troth.protocol.request import Request
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Hash32, Segment, address_from_bytes
from troth.transport.identity import Operator

DOMAIN = Domain(31337, address_from_bytes(bytes(range(20))), "2")


@dataclass(frozen=True, slots=True)
class Plan:
    """``sequences`` of ``tokens`` each after prompts of ``prompt``; ``rate`` in rows a second of all together."""

    sequences: int
    tokens: int
    hidden: int
    rate: float
    temperature: int = 1_000_000
    prompt: int = 16
    vocabulary: int = 152_000
    dtype: int = 1
    exact: bool = True
    """Hashes of rows travel; else the rows do."""


def operator_of(name: str) -> Operator:
    """A key that depends on its name alone."""
    return Operator(keccak256(name.encode()), DOMAIN)


def order_of(number: int) -> Hash32:
    """An order's id."""
    return Hash32(keccak256(b"order %d" % number))


def prompt_of(plan: Plan, number: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Tokens of a prompt, which no two sequences share, and its rows."""
    tokens = tuple(1000 * number + place for place in range(plan.prompt))
    return tokens, np.zeros((plan.prompt, plan.hidden), np.uint16)


def chain_of(plan: Plan, number: int) -> RowHashes:
    """The chain of rows after the prompt."""
    tokens, rows = prompt_of(plan, number)
    size = row_size(plan.hidden, Dtype(plan.dtype))
    return RowHashes(order_of(number), 0).extend(rows.tobytes(), size, tokens)[0]


def session_of(plan: Plan, number: int) -> SegmentSession:
    """A session of a whole model that has read its prompt and chosen its first token."""
    tokens, rows = prompt_of(plan, number)
    request = Request(ZERO_HASH, tokens, plan.tokens + 1, plan.temperature, 1_000_000, ())
    seat: Any = SimpleNamespace(
        order_id=order_of(number),
        index=0,
        sends_hashes=travel_as_hashes(exact=plan.exact, segments=1),
        is_first=True,
        is_last=True,
        infers=True,
        dtype=Dtype(plan.dtype),
        request=request,
        noise_seed=order_of(number),
        layers=Segment(0, 2),
        scheduler=operator_of("scheduler").address,
        descriptor=SimpleNamespace(hidden_size=plan.hidden),
    )
    session = SegmentSession.begin(seat, time.time())
    session.rows.own = chain_of(plan, number)
    session.rows.add(np.array(tokens), rows)
    session.rows.chained = 1
    session.text.emit(plan.prompt - 1, 7)
    return session
