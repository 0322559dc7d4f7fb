"""Content-addressed identifiers, the salted commitments and the fee, exactly as the contract computes them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from troth.protocol import typed_data
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.types import (
    Address,
    ExecutionClass,
    Hash32,
    ModelDescriptor,
    Order,
    Segment,
    address_to_bytes,
)

REWARD_UNITS = 6
"""Units earned by an inferencer, by each verifier of a segment and by the scheduler (VeriLLM Appendix E); the
contract's constant of the same name must change with it, or every fee check fails."""


def _abi_struct(value: Any) -> bytes:
    """``abi.encode`` of a flat struct; raises InvalidField where a value does not fit its Solidity type.

    Packed here since eth_abi pads a short bytes32 in silence, which would give another, valid-looking identifier.
    """
    hints = get_type_hints(type(value), include_extras=True)
    types = [typed_data.solidity_type(hints[field.name]) for field in fields(value)]
    heads, tails = [], b""
    for field, name in zip(fields(value), types, strict=True):
        item = getattr(value, field.name)
        if name == "string":
            heads.append((len(types) * 32 + len(tails)).to_bytes(32))
            tails += _abi_string(item)
        else:
            heads.append(typed_data.field_encoder(name)(item))
    return b"".join(((32).to_bytes(32), *heads, tails))


def _abi_string(text: str) -> bytes:
    encoded = typed_data.encode_text(text)
    return len(encoded).to_bytes(32) + encoded + bytes(-len(encoded) % 32)


def model_id(descriptor: ModelDescriptor) -> Hash32:
    """keccak256(abi.encode(descriptor))."""
    return Hash32(keccak256(_abi_struct(descriptor)))


def class_id(execution_class: ExecutionClass) -> Hash32:
    """keccak256(abi.encode(class))."""
    return Hash32(keccak256(_abi_struct(execution_class)))


def task_id(order: Order, domain: typed_data.Domain) -> Hash32:
    """EIP-712 digest of the order, so that chain and contract are part of it."""
    return typed_data.digest(order, domain)


def group_id(execution_class: Hash32, segment: Segment) -> Hash32:
    """keccak256(abi.encode(class, first, end)): the group of nodes eligible for a segment."""
    return Hash32(keccak256(_word(execution_class) + segment.first.to_bytes(32) + segment.end.to_bytes(32)))


def fee(execution_class: ExecutionClass, segments: int) -> int:
    """Wei for a task: 6 units to each inferencer, each verifier and the scheduler."""
    if segments < 1:
        raise InvalidField("A task has at least one segment", segments, "Count the segments of the layer split.")
    return execution_class.unit * REWARD_UNITS * ((1 + execution_class.verifiers) * segments + 1)


def verdict_commitment(
    task: Hash32, segment: int, verifier: Address, *, root: Hash32, verdict: bool, salt: Hash32
) -> Hash32:
    """What a verifier posts: hides root and verdict until it reveals them with the salt."""
    words = (_word(task), _index(segment), _account(verifier), _word(root), int(verdict).to_bytes(32), _word(salt))
    return Hash32(keccak256(b"".join(words)))


def trace_commitment(task: Hash32, segment: int, verifier: Address, *, root: Hash32, salt: Hash32) -> Hash32:
    """What a verifier signs before it is sent the inferencer's rows: both verdicts that it can still post."""
    yes = verdict_commitment(task, segment, verifier, root=root, verdict=True, salt=salt)
    no = verdict_commitment(task, segment, verifier, root=root, verdict=False, salt=salt)
    return either_verdict(yes, no)


def either_verdict(posted: Hash32, other: Hash32) -> Hash32:
    """The trace commitment behind a verdict commitment and the one that was not posted.

    Their order tells nothing, so whoever knows both cannot tell the yes from the no.
    """
    return Hash32(keccak256(b"".join(sorted((_word(posted), _word(other))))))


def _word(value: bytes) -> bytes:
    if len(value) != 32:
        raise InvalidField("A bytes32 word has exactly 32 bytes", value, "Pass the full digest.")
    return value


def _index(segment: int) -> bytes:
    if not 0 <= segment <= 255:
        raise InvalidField("A segment index lies in 0 to 255", segment, "Count segments from zero.")
    return segment.to_bytes(32)


def _account(address: Address) -> bytes:
    return bytes(12) + address_to_bytes(address)
