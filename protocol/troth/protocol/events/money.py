"""Events that move money (ITrothRegistry.sol, ITrothEscrow.sol, ITrothSettlement.sol). All amounts in wei."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.events.log import LogMeta
from troth.protocol.settlement import SlashReason
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class StakeAdded:
    """``stake`` is the sum after it."""

    operator: Address
    amount: int
    stake: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Stake and credit left the contract; the account is gone."""

    operator: Address
    payout: Address
    stake: int
    credit: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Claimed:
    """Credit left the contract."""

    operator: Address
    payout: Address
    amount: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EscrowDeposited:
    """``balance`` is the free escrow after it."""

    client: Address
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EscrowWithdrawn:
    """``balance`` is the free escrow after it."""

    client: Address
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class EscrowReleased:
    """A locked fee, or a part of it, is free again; ``balance`` is the free escrow after it."""

    task_id: Hash32
    client: Address
    amount: int
    balance: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Credited:
    """``credit`` is the account's after it."""

    task_id: Hash32
    account: Address
    amount: int
    credit: int
    meta: LogMeta


@dataclass(frozen=True, slots=True)
class Slashed:
    """``stake`` is what remains; ``evidence`` is the hash that the contract decided from."""

    task_id: Hash32
    operator: Address
    amount: int
    stake: int
    reason: SlashReason
    evidence: Hash32
    meta: LogMeta


MoneyEvent = StakeAdded | Withdrawn | Claimed | EscrowDeposited | EscrowWithdrawn | EscrowReleased | Credited | Slashed
