"""A network that stands nowhere, for tests of its file."""

from __future__ import annotations

from troth.network.description import CONTRACTS_WITH_CODE, CommitteePlace, NetworkDescription
from troth.protocol.hashing import keccak256
from troth.protocol.market.addresses import contracts_of
from troth.protocol.market.shipped import DEMO
from troth.protocol.types import Hash32, address_from_bytes

FACTORY = address_from_bytes(b"\x42" * 20)
NETWORK = NetworkDescription(
    name="mine",
    chain_id=77,
    rpc=("https://chain.example.org",),
    block_seconds=2.5,
    start_block=1_234,
    factory=FACTORY,
    created_by=Hash32(keccak256(b"a transaction")),
    contracts=contracts_of(FACTORY, DEMO),
    code={name: Hash32(keccak256(name.encode())) for name in CONTRACTS_WITH_CODE},
    parameters=DEMO,
    committee=CommitteePlace(address_from_bytes(b"\x43" * 20), Hash32(keccak256(b"committee"))),
)
