"""What an operator can withdraw, or why it is nothing; and whether to redeem costs more gas than it brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troth.chain.errors import NothingFree
from troth.chain.market import Market
from troth.protocol.amounts import Asset
from troth.protocol.market.calls import view
from troth.protocol.market.parts import Part
from troth.protocol.market.state import account_id
from troth.protocol.market.types import PotKind
from troth.protocol.types import Address


@dataclass(frozen=True, slots=True)
class Withdrawable:
    """An operator's pots in the asset's smallest unit, and the blocks that free its stake.

    Attributes:
        credit: what vouchers and rewards brought.
        stake: what answers for it.
        exit_block: after which the stake is free; 0 as long as it has not left.
        block: the newest one.
        locked: how much of the stake open cases hold; while they hold any, none of it is free.
    """

    credit: int
    stake: int
    exit_block: int
    block: int
    locked: int = 0

    @property
    def is_stake_free(self) -> bool:
        """Whether there is stake that nothing binds any more."""
        return bool(self.stake and self.exit_block and self.block > self.exit_block and not self.locked)

    @property
    def amount(self) -> int:
        """What a withdrawal pays now."""
        return self.credit + (self.stake if self.is_stake_free else 0)

    def told(self) -> dict[str, Any]:
        """The same for a report: what is paid, what stays bound, and until when."""
        is_bound = bool(self.stake) and not self.is_stake_free
        return {
            "amount_units": str(self.amount),
            "credit_units": str(self.credit),
            "stake_units": str(self.stake if self.is_stake_free else 0),
            "bound_units": str(self.stake if is_bound else 0),
            "locked_units": str(self.locked),
            "bound_until_block": self.exit_block or None if is_bound else None,
        }

    def unbinding(self, unbonding: int) -> dict[str, Any]:
        """When the stake is free, for a report; of one that has not left as if it left now. ``unbonding``: blocks."""
        return {
            "stake_units": str(self.stake),
            "unbonding_blocks": unbonding,
            "stake_free_after_block": self.exit_block or self.block + unbonding,
        }

    def departure(self, command: str) -> tuple[str, str]:
        """How an operator stands that leaves or has left, and what it does now; ``command`` as in `require_some`."""
        if self.block <= self.exit_block:
            standing = f"leaving; the stake is free after block {self.exit_block}, and it is {self.block}"
            return standing, f"Serve on until then, and run `{command} withdraw --broadcast`."
        if self.locked:
            standing = f"left; its stake is bound beyond block {self.exit_block}, since open cases hold part of it"
            return standing, f"Serve on until they are over, and run `{command} withdraw --broadcast`."
        if self.stake:
            return f"left; its stake is free since block {self.exit_block}", f"Run `{command} withdraw --broadcast`."
        again = f"An operator registers once: to serve again, set up another with `{command} init --home FOLDER`."
        return "left, and its stake is withdrawn", f"Nothing is left to do here. {again}"

    def require_some(self, asset: Asset, command: str) -> None:
        """Raise NothingFree where a withdrawal would pay nothing; ``command``: `troth node` or `troth scheduler`."""
        if self.amount:
            return
        redeems = f"`{command} redeem --broadcast` turns vouchers into credit"
        what = "Nothing can be withdrawn now"
        if not self.stake:
            raise NothingFree(what, "no credit and no stake", f"{redeems}.")
        held = f"no credit, and {asset.show(self.stake)} of stake"
        if not self.exit_block:
            leaves = f"`{command} exit --broadcast` starts the time after which the stake is free; {redeems}."
            raise NothingFree(what, f"{held}, which is bound until this operator leaves", leaves)
        if self.block > self.exit_block:
            value = f"{held}, of which open cases hold {asset.show(self.locked)}"
            raise NothingFree(what, value, f"Serve on, and repeat it when they are over; {redeems}.")
        value = f"{held}, which is bound until block {self.exit_block}; it is block {self.block}"
        raise NothingFree(what, value, f"Repeat it after block {self.exit_block}; {redeems}.")


async def withdrawable(market: Market, operator: Address) -> Withdrawable:
    """Credit, stake and exit block of an operator."""
    wanted = view(market.contracts, Part.REGISTRY, "roleOf", operator, returns=(int, Address, int))
    _, _, exit_block = await market.read(wanted)
    stake, locked = await market.read(view(market.contracts, Part.BANK, "stakeOf", operator, returns=(int, int)))
    pot = view(market.contracts, Part.BANK, "balanceOf", PotKind.CREDIT, account_id(operator), returns=int)
    return Withdrawable(await market.read(pot), stake, exit_block, await market.chain.block_number(), locked)


def gas_warning(told: Mapping[str, Any], amount: int, asset: Asset) -> dict[str, str]:
    """A line for a report of a transaction that brings ``amount``, where its gas may cost more; in a token, nothing."""
    most = int(told.get("maximum_gas_cost_wei") or 0)
    if not asset.is_coin or most <= amount:
        return {}
    later = "what is not redeemed stays yours, and the running process redeems it once that pays"
    return {"warning": f"gas may cost {asset.show(most)}, more than the {asset.show(amount)} that this brings: {later}"}
