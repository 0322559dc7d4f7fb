"""What an audit is made from: headers, logs and transactions of one contract. Plain data, from RPC or a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from troth.audit.transactions import Transaction
from troth.protocol.contract_types import Parameters
from troth.protocol.logs import Log
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True)
class Header:
    """The header fields that windows, deadlines and samples need; ``timestamp`` in Unix seconds."""

    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything read of ``contract`` up to block ``last``.

    ``transactions`` lacks what could not be had (unknown transaction types). ``balance`` (wei) and ``task_states`` are
    the node's own answers for block ``last``; None and empty where there was no node to ask.
    """

    chain_id: int
    contract: Address
    parameters: Parameters
    first: int
    last: Header
    logs: tuple[Log, ...]
    headers: Mapping[int, Header]
    transactions: Mapping[Hash32, Transaction]
    balance: int | None = None
    task_states: Mapping[Hash32, Hash32] = field(default_factory=dict)

    @property
    def domain(self) -> Domain:
        """The EIP-712 domain of the contract."""
        return Domain(self.chain_id, self.contract)
