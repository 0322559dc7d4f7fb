"""When a node asks the chain for its money, and for whom it works unpaid: what the operator may set."""

from __future__ import annotations

from dataclasses import dataclass

UNPAID_ORDERS = 100
"""Default limit of one scheduler's unpaid work, in the class's dearest orders: what is lost if it never pays."""
GAS_SHARE = 0.02
"""Default share of what is redeemed or claimed that its gas may cost."""
CLAIM_LAGS = 3
"""Default lags after which work that was not acknowledged is claimed; an honest scheduler acknowledges after one."""


@dataclass(frozen=True, slots=True)
class EarningPolicy:
    """``unpaid`` in asset units, None: UNPAID_ORDERS times the class's fee cap.

    ``locks``: rejecting verdicts lock L, so that the node they reject is suspended.
    """

    unpaid: int | None = None
    gas_share: float = GAS_SHARE
    claim_lags: int = CLAIM_LAGS
    locks: bool = False

    def limit(self, fee_cap: int) -> int:
        """The most of one scheduler's work that may be unpaid."""
        return UNPAID_ORDERS * fee_cap if self.unpaid is None else self.unpaid

    def is_worth(self, amount: int, gas_cost: int) -> bool:
        """Whether an amount is worth the gas that asking for it costs, both in asset units."""
        return amount > 0 and gas_cost <= amount * self.gas_share
