"""A bundle's lines. Hashes and bytes are 0x-hex, wei are decimal strings (JSON numbers lose digits beyond 2^53).

A bundle is gzip over JSON lines: one Opening, then Headers by number, Inputs by transaction hash, Entries in the order
of the chain, and one Seal with the SHA-256 of all lines before it:
`zcat FILE | head -n -1 | sha256sum` prints it too.
"""

from __future__ import annotations

import msgspec

VERSION = 2


class Opening(msgspec.Struct, frozen=True, tag="bundle", tag_field="type", forbid_unknown_fields=True):
    """What the bundle is of; ``parameters`` are the contract's, as the exporter's node gave them."""

    version: int
    chain_id: int
    contract: str
    first_block: int
    last_block: int
    commit_window: int
    sample_window: int
    reveal_window: int
    dispute_window: int
    unbonding_period: int
    minimum_scheduler_stake: str
    reserve: str
    headers: int
    transactions: int
    logs: int


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="type", forbid_unknown_fields=True):
    """A block header's fields."""

    number: int
    hash: str
    parent_hash: str
    timestamp: int


class Input(msgspec.Struct, frozen=True, tag="transaction", tag_field="type", forbid_unknown_fields=True):
    """A signed transaction, whole: ``raw`` hashes to ``hash``."""

    hash: str
    raw: str


class Entry(msgspec.Struct, frozen=True, tag="log", tag_field="type", forbid_unknown_fields=True):
    """One log of the contract."""

    block: int
    log_index: int
    transaction: str
    topics: tuple[str, ...]
    data: str


class Seal(msgspec.Struct, frozen=True, tag="seal", tag_field="type", forbid_unknown_fields=True):
    """The last line."""

    content: str


Line = Opening | Header | Input | Entry | Seal
