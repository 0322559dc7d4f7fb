"""The deployed Committee and troth.protocol.committee say the same: members, threshold, digests, changes."""

from __future__ import annotations

import pytest
from conftest import Anvil, key_number
from support import contract_reads as reads

from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, submit
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.overlay.directory.listing import membership_on
from troth.protocol import committee_calls as calls
from troth.protocol import typed_data
from troth.protocol.calls import Call
from troth.protocol.committee import AddMember, CommitteeMember, MoveMember, RemoveMember, threshold
from troth.protocol.types import Hash32

pytestmark = pytest.mark.chain


def member(number: int, endpoint: str = "https://192.0.2.1:8543") -> CommitteeMember:
    return CommitteeMember(key_number(700 + number).address, Hash32(number.to_bytes(32, "big")), endpoint)


def signatures(message: object, chain: Chain, numbers: range) -> list[bytes]:
    keys = sorted((key_number(700 + number) for number in numbers), key=lambda key: key.address.lower())
    return [typed_data.sign(message, chain.domain, key.secret) for key in keys]


async def test_members_change_by_python_signatures(anvil: Anvil) -> None:
    payer: Key = anvil.keys[6]
    first = [member(number) for number in range(1, 5)]
    created = (await submit(anvil.url, committee_creation(first), payer)).created
    assert created is not None

    async def change(call: Call, key: Key) -> None:
        await submit(anvil.url, call, key, created)

    async with await Chain.connect(anvil.url, created) as chain:
        assert await chain.read(calls.members()) == tuple(first)
        assert await chain.read(reads.domain_separator()) == typed_data.domain_separator(chain.domain)
        new = member(5)
        adding = calls.add_member(
            new, signatures(AddMember(new.operator, new.tls_key_hash, new.endpoint, 0), chain, range(1, 5))
        )
        await change(adding, payer)
        with pytest.raises(ChainRejected, match=r"NotAMember|SignersOutOfOrder"):
            await change(adding, payer)
        moved = member(5, "https://192.0.2.99")
        message = MoveMember(moved.operator, moved.tls_key_hash, moved.endpoint, 1)
        with pytest.raises(ChainRejected, match="TooFewSignatures"):
            await change(calls.move_member(moved, signatures(message, chain, range(1, 4))), payer)
        await change(calls.move_member(moved, signatures(message, chain, range(1, 5))), payer)
        gone = first[0].operator
        await change(calls.remove_member(gone, signatures(RemoveMember(gone, 2), chain, range(2, 6))), payer)
        membership = await membership_on(chain)
        assert set(membership.members) == {*first[1:], moved}
        assert await chain.read(reads.threshold()) == threshold(4)
        assert not await chain.read(reads.is_member(gone))
        assert await chain.read(calls.nonce()) == 3


async def test_a_committee_needs_members(anvil: Anvil) -> None:
    with pytest.raises(ChainRejected, match="InvalidCount"):
        await submit(anvil.url, committee_creation([]), anvil.keys[6])
    with pytest.raises(ChainRejected, match="AlreadyMember"):
        await submit(anvil.url, committee_creation([member(1), member(1)]), anvil.keys[6])
