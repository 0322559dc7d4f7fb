"""How an order can fail before its end, and whether it can have arrived all the same.

ClientError
├── OrderFailed        nothing is owed: it was refused, or its scheduler gave it up; asking elsewhere is free
│   └── OrderStale     it named a block that was too old: this client's chain node is slow; one with a newer is tried
├── OrderStalled       no line came in time, or the stream broke; what becomes of it is found out in the background
│   └── OrderUnseen    it names a block that this client's chain node has not shown: another scheduler is tried
├── OrderContradicted  what was sent breaks a rule: the evidence is kept, nothing is paid, the tab is used no more
├── AnswerChanged      what a node signed while it wrote is not what its scheduler tells: what was shown does not stand
├── CheckLate          a check that was drawn did not come, or not whole
├── CheckForged        a scheduler leads a check otherwise than the rules do: OrderContradicted follows
├── StateUnknown       the answer stands, and the state behind it was not shown
└── EntryFailed        the node that an order entered at was silent or told what is not so: its scheduler is asked
"""

from __future__ import annotations

from troth.client.errors import ClientError, ProofError
from troth.protocol.market.checks import DRAW_AGE
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Parameters
from troth.protocol.types import Address

VOUCHER_REFUSALS = frozenset({"voucher_refused", "invalid_voucher"})
"""Codes of refusals that a newer word of the tab mends."""
OLD_BLOCK = "old_block"
"""A scheduler's word for an order whose reference block is too old."""
SLOW_CHAIN_REMEDY = (
    "The chain node that this client asks (`rpc` in client.toml) answers too slowly for this network, or is behind: "
    "name another with --rpc, or ask again."
)
CLAIMS_UNACKNOWLEDGED = "claims_unacknowledged"
"""A scheduler's word for a tab of which a claim was paid, and not acknowledged since."""


def unknown_until(order: Order, parameters: Parameters) -> int:
    """The block after which no scheduler admits an order: its reference block is too old then, by any view of the chain
    that is not stale. What its scheduler does not know by then, it never will."""
    return order.reference_block + parameters.reference_age + DRAW_AGE


def what_happened(error: Exception) -> str:
    """An error without values, which may be a peer's text."""
    return str(getattr(error, "what", "") or type(error).__name__)


class OrderFailed(ClientError):
    """Nothing is owed for the order."""

    def __init__(self, what: str, value: object, remedy: str, *, shortfall: int = 0, tab: str = "") -> None:
        super().__init__(what, value, remedy)
        self.shortfall = shortfall
        self.tab = tab


class OrderStale(OrderFailed):
    """The order named a block that is too old by now."""


class OrderStalled(ClientError):
    """What becomes of the order is not known yet."""


class OrderUnseen(OrderStalled):
    """The scheduler names a block that this client has not seen, so that nothing it says can be checked yet."""


class OrderContradicted(ProofError):
    """What the scheduler sent breaks a rule of the protocol."""


class AnswerChanged(ProofError):
    """A node signed other tokens while it wrote than its scheduler tells; ``node`` is the one."""

    def __init__(self, node: Address, order: str) -> None:
        what = "What the node signed while it wrote is not the answer that its scheduler tells"
        remedy = f"Do not rely on what was shown; `troth client receipts {order}` follows the order. Ask again."
        super().__init__(what, node, remedy)
        self.node = node


class StateUnknown(ClientError):
    """The answer stands, and the state behind it was not shown."""


class EntryFailed(ClientError):
    """The order goes on at its scheduler; ``silent``: nothing came, or a refusal, which may be nobody's fault."""

    def __init__(self, what: str, *, silent: bool = False) -> None:
        super().__init__(what, "", "The scheduler is asked.")
        self.silent = silent


def refusal_remedy(code: str, tab: str) -> str:
    """What to do where a scheduler refuses the words of a tab; empty: it says so itself."""
    if code == CLAIMS_UNACKNOWLEDGED:
        return (
            "Ask again in a minute: what a claim was paid is acknowledged by itself, once this client has seen it on "
            "chain. `troth client receipts` shows what waits."
        )
    if code == OLD_BLOCK:
        return f"The order is free. {SLOW_CHAIN_REMEDY}"
    return other_copy_remedy(tab) if code in VOUCHER_REFUSALS else ""


def refused_as(code: str) -> type[OrderFailed]:
    """The error for a scheduler's word."""
    return OrderStale if code == OLD_BLOCK else OrderFailed


def other_copy_remedy(tab: str) -> str:
    """What to do about a refused voucher that no newer word mends: two copies of one folder have ordered on a tab."""
    return (
        "Ask again: what the scheduler knows of this tab is fetched first. If that does not help, another copy of this "
        f"client's folder ordered on it: end that one, run `troth client close {tab} --broadcast`, and open another "
        "tab."
    )
