"""From the node's JSON to our types. A node is not trusted for form: anything unexpected is ChainUnavailable."""

from __future__ import annotations

from typing import Any

from troth.chain.errors import ChainUnavailable
from troth.chain.records import Block, TransactionReceipt
from troth.protocol.logs import EventLog, LogMeta
from troth.protocol.types import Hash32, to_address, to_hash32


def malformed(what: str, value: object) -> ChainUnavailable:
    """The error for an answer of the wrong form."""
    shown = repr(value)[:120]
    return ChainUnavailable(f"The chain node answered with a malformed {what}", shown, "Use another node.")


def quantity(value: Any) -> int:
    """Integer of a JSON-RPC quantity such as "0x1f"."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise malformed("quantity", value)
    try:
        return int(value, 16)
    except ValueError as error:
        raise malformed("quantity", value) from error


def data(value: Any) -> bytes:
    """Bytes of JSON-RPC data such as "0x00ff"."""
    if not isinstance(value, str) or not value.startswith("0x"):
        raise malformed("byte string", value)
    try:
        return bytes.fromhex(value[2:])
    except ValueError as error:
        raise malformed("byte string", value) from error


def hash32(value: Any) -> Hash32:
    """32 bytes of JSON-RPC data."""
    raw = data(value)
    if len(raw) != 32:
        raise malformed("hash", value)
    return to_hash32(raw)


def hexadecimal(raw: bytes) -> str:
    """JSON-RPC data of bytes."""
    return "0x" + raw.hex()


def block(value: Any) -> Block:
    """Header of ``eth_getBlockByNumber``."""
    try:
        return Block(
            number=quantity(value["number"]),
            hash=hash32(value["hash"]),
            parent_hash=hash32(value["parentHash"]),
            timestamp=quantity(value["timestamp"]),
        )
    except (KeyError, TypeError) as error:
        raise malformed("block", value) from error


def log(value: Any) -> EventLog:
    """One entry of ``eth_getLogs`` or of a receipt."""
    try:
        meta = LogMeta(
            block=quantity(value["blockNumber"]),
            block_hash=hash32(value["blockHash"]),
            transaction=hash32(value["transactionHash"]),
            log_index=quantity(value["logIndex"]),
        )
        topics = tuple(hash32(topic) for topic in value["topics"])
        return EventLog(to_address(value["address"]), topics, data(value["data"]), meta)
    except (KeyError, TypeError) as error:
        raise malformed("log", value) from error


def logs(value: Any) -> list[EventLog]:
    """Result of ``eth_getLogs``."""
    if not isinstance(value, list):
        raise malformed("list of logs", value)
    return [log(entry) for entry in value]


def receipt(value: Any) -> TransactionReceipt:
    """A mined receipt."""
    try:
        created = value.get("contractAddress")
        return TransactionReceipt(
            transaction=hash32(value["transactionHash"]),
            block=quantity(value["blockNumber"]),
            block_hash=hash32(value["blockHash"]),
            gas_used=quantity(value["gasUsed"]),
            gas_price=quantity(value["effectiveGasPrice"]),
            created=to_address(created) if created else None,
            logs=tuple(log(entry) for entry in value["logs"]),
        )
    except (KeyError, TypeError) as error:
        raise malformed("receipt", value) from error
