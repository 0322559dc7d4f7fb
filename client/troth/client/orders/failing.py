"""How an order can fail before its end.

ClientError
├── OrderFailed        nothing is owed: it was refused, or its scheduler gave it up; asking elsewhere is free
├── OrderStalled       no line came in time, or the stream broke; what becomes of it is found out in the background
└── OrderContradicted  what was sent breaks a rule: the evidence is kept, nothing is paid, the tab is used no more
"""

from __future__ import annotations

from troth.client.errors import ClientError, ProofError


class OrderFailed(ClientError):
    """Nothing is owed for the order."""

    def __init__(self, what: str, value: object, remedy: str, *, shortfall: int = 0, tab: str = "") -> None:
        super().__init__(what, value, remedy)
        self.shortfall = shortfall
        self.tab = tab


class OrderStalled(ClientError):
    """What becomes of the order is not known yet."""


class OrderContradicted(ProofError):
    """What the scheduler sent breaks a rule of the protocol."""
