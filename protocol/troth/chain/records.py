"""What the adapter hands out: blocks, receipts, dry runs. Amounts in wei, times in Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.contract_errors import ContractError
from troth.protocol.logs import EventLog
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Block:
    """The header fields that membership, windows and reorganisations need."""

    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp: int


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """A mined transaction, with the logs of every contract."""

    transaction: Hash32
    block: int
    block_hash: Hash32
    gas_used: int
    gas_price: int
    created: Address | None
    logs: tuple[EventLog, ...] = ()

    @property
    def cost(self) -> int:
        """Wei paid for gas."""
        return self.gas_used * self.gas_price


@dataclass(frozen=True, slots=True)
class Fees:
    """EIP-1559 fees per gas, in wei."""

    maximum: int
    priority: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a transaction would do now: ``rejection`` is None if it would succeed."""

    function: str
    sender: Address
    value: int
    gas: int
    maximum_cost: int
    rejection: ContractError | None

    @property
    def accepted(self) -> bool:
        """True if the transaction would not revert."""
        return self.rejection is None
