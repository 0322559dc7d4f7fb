"""What a client sends a scheduler over HTTP, each body the canonical JSON of one of these types."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market.messages import Signed
from troth.protocol.market.types import Order, Tab, Voucher
from troth.protocol.types import Hash32, Uint64

SUBMISSION_LIMIT = 2 * 2**20
"""Bytes of a submission: the longest prompt in hexadecimal, and room for its order."""
ACKNOWLEDGEMENT_LIMIT = 1 << 13
QUERY_SECONDS = 300
"""How far the time of a query may lie from the scheduler's clock: an old one that leaked says nothing for ever."""


@dataclass(frozen=True, slots=True)
class Submission:
    """POST /v1/orders: an order, the voucher that authorises it, and the request it stands for as canonical bytes.

    ``logprobs``: how many alternatives to each token are wanted, plus one; 0 asks for none.
    """

    order: Signed[Order]
    tab: Tab
    voucher: Signed[Voucher]
    request: bytes
    salt: Hash32
    logprobs: int = 0

    @property
    def alternatives(self) -> int:
        """The hint as ``logprobs`` counts it: NO_LOGPROBS, or so many alternatives."""
        return self.logprobs - 1 if self.logprobs else NO_LOGPROBS


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """POST /v1/vouchers: a newer word on a tab."""

    tab: Tab
    voucher: Signed[Voucher]


@dataclass(frozen=True, slots=True)
class TabQuery:
    """A tab key asks for what was last signed with it: typed data, so that nobody else reads a tab's orders."""

    tab: Hash32
    time: Uint64


@dataclass(frozen=True, slots=True)
class Resumption:
    """Answer of POST /v1/tabs/{id}/recover: what ``tabs.resume`` takes; no voucher where none was given here."""

    voucher: Signed[Voucher] | None
    orders: tuple[Signed[Order], ...]
