"""A log as it comes from a node, and where in the chain it stands."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.types import Address, Hash32


@dataclass(frozen=True, slots=True, order=True)
class LogMeta:
    """Place of a log; ``log_index`` counts within its block."""

    block: int
    log_index: int
    block_hash: Hash32
    transaction: Hash32


@dataclass(frozen=True, slots=True)
class Log:
    """Topics and data of one log of the contract at ``address``, not decoded."""

    address: Address
    topics: tuple[Hash32, ...]
    data: bytes
    meta: LogMeta
