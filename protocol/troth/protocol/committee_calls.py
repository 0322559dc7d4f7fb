"""Calls and reads of contracts/overlay/Committee.sol."""

from __future__ import annotations

from collections.abc import Sequence

from troth.protocol.bindings import COMMITTEE
from troth.protocol.bindings.structs import converter
from troth.protocol.calls import Call, View, calldata
from troth.protocol.committee import CommitteeMember
from troth.protocol.types import Address


def members() -> View[tuple[CommitteeMember, ...]]:
    """All members, in the contract's order."""
    return View("members", _data("members"), converter(tuple[CommitteeMember, ...]), COMMITTEE)


def nonce() -> View[int]:
    """What the next change is signed over."""
    return View("nonce", _data("nonce"), int, COMMITTEE)


def add_member(member: CommitteeMember, signatures: Sequence[bytes]) -> Call:
    """Add a member; ``signatures`` over AddMember in ascending order of their signers."""
    return Call("addMember", _data("addMember", member, list(signatures)))


def remove_member(operator: Address, signatures: Sequence[bytes]) -> Call:
    """Remove a member; ``signatures`` over RemoveMember in ascending order of their signers."""
    return Call("removeMember", _data("removeMember", operator, list(signatures)))


def move_member(member: CommitteeMember, signatures: Sequence[bytes]) -> Call:
    """Change endpoint or TLS key; ``signatures`` over MoveMember in ascending order of their signers."""
    return Call("moveMember", _data("moveMember", member, list(signatures)))


def _data(function: str, *arguments: object) -> bytes:
    return calldata(COMMITTEE, function, *arguments)
