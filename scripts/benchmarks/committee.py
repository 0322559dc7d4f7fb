"""What changes of the directory's committee cost on chain, from the receipts of a real EVM."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from benchmarks.figures import Figure
from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, submit
from troth.chain.keystore import Key
from troth.protocol import committee_calls as calls
from troth.protocol import typed_data
from troth.protocol.committee import AddMember, CommitteeMember, RemoveMember
from troth.protocol.hashing import keccak256
from troth.protocol.types import Hash32
from troth.testnet.anvil import fund, start_anvil
from troth.testnet.processes import ProcessGroup

MEMBERS = 4


def measure() -> list[Figure]:
    """A committee of four, one more, and one less."""
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, rpc = start_anvil(processes, block_seconds=0)
            payer = Key.generate()
            fund(rpc, payer.address, 10**18)
            return asyncio.run(_measure(rpc, payer))
        finally:
            processes.stop_all()


async def _measure(rpc: str, payer: Key) -> list[Figure]:
    keys = sorted((_key(number) for number in range(MEMBERS)), key=lambda key: key.address.lower())
    created = await submit(rpc, committee_creation([_member(key) for key in keys]), payer)
    assert created.created is not None
    async with await Chain.connect(rpc, created.created) as chain:
        domain = chain.domain
    new = _member(_key(MEMBERS))
    adding = AddMember(new.operator, new.tls_key_hash, new.endpoint, 0)
    removing = RemoveMember(new.operator, 1)
    signed = {message: [typed_data.sign(message, domain, key.secret) for key in keys] for message in (adding, removing)}
    added = await submit(rpc, calls.add_member(new, signed[adding]), payer, created.created)
    removed = await submit(rpc, calls.remove_member(new.operator, signed[removing]), payer, created.created)
    return [
        Figure("committee: deployment with 4 members", created.gas_used, "gas"),
        Figure("committee: addMember, 4 signatures", added.gas_used, "gas"),
        Figure("committee: removeMember, 4 signatures", removed.gas_used, "gas"),
    ]


def _key(number: int) -> Key:
    return Key.from_secret(keccak256(b"troth committee benchmark %d" % number))


def _member(key: Key) -> CommitteeMember:
    return CommitteeMember(key.address, Hash32(keccak256(key.address.encode())), "https://member.example.org:8543")
