"""Who joins the committee, leaves it or moves: a file that goes from member to member until enough have signed.

The contract takes a change that more than 2/3 of the members signed, over its nonce. So a signature counts for the next
change and for no other one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from troth.chain.adapter import Chain
from troth.chain.keystore import load_account, read_password
from troth.committee.configuration import load
from troth.committee.epochs import write_json
from troth.committee.errors import ChangeRefused
from troth.committee.reputation import TransactionPayer, carry_out
from troth.overlay.directory.listing import CommitteeMembership, membership_on
from troth.protocol import committee_calls, typed_data
from troth.protocol.calls import Call
from troth.protocol.committee import (
    AddMember,
    CommitteeMember,
    MoveMember,
    RemoveMember,
    read_member,
    threshold,
)
from troth.protocol.errors import InvalidSignature, ProtocolError
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import Address, address_to_bytes, to_address

VERSION = 1
LARGEST_FILE = 64 * 1024
_Text = Annotated[str, msgspec.Meta(max_length=1024)]
ChangeKind = Literal["add", "remove", "move"]


class MemberChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What members hand to each other; ``member`` as `init` prints it, or for "remove" the operator alone."""

    version: int
    contract: _Text
    kind: ChangeKind
    member: _Text
    nonce: Annotated[int, msgspec.Meta(ge=0)]
    signatures: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=64)] = {}

    @property
    def who(self) -> CommitteeMember | Address:
        """The member that is added or moved, or the operator that is removed; raises a ProtocolError."""
        return to_address(self.member) if self.kind == "remove" else read_member(self.member)

    def message(self) -> AddMember | RemoveMember | MoveMember:
        """What is signed."""
        who = self.who
        if not isinstance(who, CommitteeMember):
            return RemoveMember(who, self.nonce)
        kind = AddMember if self.kind == "add" else MoveMember
        return kind(who.operator, who.tls_key_hash, who.endpoint, self.nonce)

    def call(self) -> Call:
        """The transaction, with all signatures."""
        ordered = sorted(self.signatures.items(), key=lambda one: address_to_bytes(to_address(one[0])))
        signatures, who = [_unhex(signature) for _, signature in ordered], self.who
        if not isinstance(who, CommitteeMember):
            return committee_calls.remove_member(who, signatures)
        make = committee_calls.add_member if self.kind == "add" else committee_calls.move_member
        return make(who, signatures)


async def propose(path: Path, folder: Path, kind: ChangeKind, member: str) -> dict[str, Any]:
    """Write the file of a change of this member's committee; raises ChangeRefused for what cannot be."""
    async with await _committee(folder) as chain:
        membership = await membership_on(chain)
        nonce = await chain.read(committee_calls.nonce())
        change = MemberChange(VERSION, chain.domain.contract, kind, member, nonce)
        _require(change, membership, nonce)
    write_json(path, change)
    return {"file": str(path), **_told(change, membership)}


async def sign(path: Path, folder: Path, password_file: Path | None) -> dict[str, Any]:
    """Add this member's signature to the file."""
    change = _read(path)
    async with await _committee(folder) as chain:
        membership = await membership_on(chain)
        _require(change, membership, await chain.read(committee_calls.nonce()))
        password = read_password(password_file, purpose="the member's keystore")
        key = await asyncio.to_thread(load_account, load(folder).operator_keystore, password)
        if membership.member(key.address) is None:
            raise ChangeRefused("This operator is no member", key.address, "Have a member sign.")
        signature = "0x" + typed_data.sign(change.message(), chain.domain, key.secret).hex()
    signed = msgspec.structs.replace(change, signatures={**change.signatures, key.address: signature})
    write_json(path, signed)
    return {"file": str(path), "signed_by": key.address, **_told(signed, membership)}


async def send(path: Path, folder: Path, payer: TransactionPayer) -> dict[str, Any]:
    """Bring a change to the contract once enough members signed; anybody may."""
    change = _read(path)
    configuration = load(folder)
    async with await _committee(folder) as chain:
        membership = await membership_on(chain)
        _require(change, membership, await chain.read(committee_calls.nonce()))
    needed = threshold(len(membership.members))
    if len(change.signatures) < needed:
        raise ChangeRefused(f"{needed} members must sign", len(change.signatures), "Hand the file to the others.")
    told = _told(change, membership)
    return await carry_out(configuration.rpc, change.call(), membership.domain.contract, payer, told)


async def _committee(folder: Path) -> Chain:
    configuration = load(folder)
    return await Chain.connect(configuration.rpc, configuration.committee_address, chain_id=configuration.chain_id)


def _require(change: MemberChange, membership: CommitteeMembership, nonce: int) -> None:
    """Raise ChangeRefused unless the contract would take this change with enough signatures."""
    if to_address(change.contract) != membership.domain.contract:
        raise ChangeRefused(
            "The change is of another committee", change.contract, "Name the home of one of its members."
        )
    if change.nonce != nonce:
        what = f"The next change has number {nonce}: another one was made meanwhile"
        raise ChangeRefused(what, change.nonce, "Propose it again, and have it signed again.")
    who = change.who
    operator = who.operator if isinstance(who, CommitteeMember) else who
    known = membership.member(operator) is not None
    if known == (change.kind == "add"):
        what = f"{operator} is a member already" if known else f"{operator} is no member"
        raise ChangeRefused(what, operator, "See: troth committee status")
    if change.kind == "remove" and len(membership.members) == 1:
        raise ChangeRefused("The last member cannot be removed", operator, "Add another one first.")
    for signer, signature in change.signatures.items():
        if membership.member(to_address(signer)) is None:
            raise ChangeRefused("Somebody signed who is no member", signer, "Take the signature out.")
        try:
            typed_data.require_signer(change.message(), membership.domain, _unhex(signature), to_address(signer))
        except InvalidSignature as error:
            raise ChangeRefused(f"{signer} did not sign this", error.what, "Let it sign again.") from error


def _read(path: Path) -> MemberChange:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ChangeRefused(f"A file of a change has at most {LARGEST_FILE} bytes", path)
        change = msgspec.json.decode(path.read_bytes(), type=prepared(MemberChange))
        change.message()
        [to_address(signer) for signer in (change.contract, *change.signatures)]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ProtocolError) as error:
        raise ChangeRefused(f"The file of a change cannot be read: {error}", path, "Propose it again.") from error
    if change.version != VERSION:
        raise ChangeRefused(f"The file has version {change.version}, this is for {VERSION}", path, "Propose it again.")
    return change


def _told(change: MemberChange, membership: CommitteeMembership) -> dict[str, Any]:
    return {
        "committee": change.contract,
        "change": change.kind,
        "member": change.member,
        "number": change.nonce,
        "signatures": f"{len(change.signatures)} of {threshold(len(membership.members))} that are needed",
    }


def _unhex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits.removeprefix("0x"))
    except ValueError as error:
        raise ChangeRefused("This is no hexadecimal number", digits[:80], "Let it sign again.") from error
