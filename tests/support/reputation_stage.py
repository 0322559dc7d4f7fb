"""A committee whose members are all enrolled in a Reputation, on an anvil that mines at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from support import contract_reads as reads

from troth.chain.adapter import Chain
from troth.chain.deployment import committee_creation, reputation_creation, submit
from troth.chain.keystore import Key
from troth.chain.records import TransactionReceipt
from troth.protocol import reputation_calls as calls
from troth.protocol import typed_data, vrf
from troth.protocol.calls import Call
from troth.protocol.committee import CommitteeMember, threshold
from troth.protocol.hashing import keccak256
from troth.protocol.market.signed import VrfProof
from troth.protocol.reputation import (
    NOT_SCORED,
    EnrollRater,
    EpochUpdate,
    ReputationRules,
    SignedSilence,
    SilenceReport,
    leader_alpha,
    list_hash,
)
from troth.protocol.types import ZERO_HASH, Address, Hash32, address_from_bytes, address_to_bytes

PROMPTS = Hash32(keccak256(b"prompts"))
_RUNTIME = "60015f5260043560205260605ff3"
REGISTRY_CREATION = Call("a registry", bytes.fromhex("600e8060095f395ff3" + _RUNTIME))
"""A Registry's roleOf, for which every account is a node of its own: it returns (1, operator, 0)."""


def node(number: int) -> Address:
    """Nodes by their numbers, in ascending order."""
    return address_from_bytes((0xA0DE << 64 | number).to_bytes(20, "big"))


def rater_key(number: int) -> Key:
    """A member's account."""
    return Key.from_secret(keccak256(b"troth rater %d" % number))


def vrf_secret(number: int) -> bytes:
    """A member's VRF key."""
    return (1000 + number).to_bytes(32, "big")


@dataclass
class ReputationStage:
    """``keys`` are the members', in ascending order of their addresses; ``payer`` is everybody's owner but one's."""

    url: str
    payer: Key
    mine: Callable[[int], None]
    rules: ReputationRules
    keys: tuple[Key, ...]
    contract: Address
    start_block: int
    chain: Chain
    nodes: tuple[Address, ...] = ()
    receipts: list[TransactionReceipt] = field(default_factory=list)

    @property
    def members(self) -> tuple[Address, ...]:
        """All operators."""
        return tuple(key.address for key in self.keys)

    @property
    def needed(self) -> int:
        """How many must sign."""
        return threshold(len(self.keys))

    async def send(self, call: Call, key: Key | None = None) -> TransactionReceipt:
        """A transaction, mined."""
        receipt = await submit(self.url, call, key or self.payer, self.contract)
        self.receipts.append(receipt)
        return receipt

    async def to_epoch(self, epoch: int) -> None:
        """Mine until the epoch has begun."""
        first = self.start_block + epoch * self.rules.epoch_blocks
        self.mine(first - await self.chain.block_number())

    async def update(
        self, credits: Mapping[Address, int] | None = None, *, proof: VrfProof | None = None
    ) -> EpochUpdate:
        """An update of this epoch by whom the seed (or the proof) draws; without credits it rates nobody."""
        epoch = await self.chain.read(calls.epoch_now())
        seed = await self.chain.read(calls.seed_of(epoch))
        randomness = seed if proof is None else vrf.proof_to_hash(proof.proof)
        leader = await self.chain.read(reads.leader_of(epoch, randomness))
        nodes = () if credits is None else self.nodes
        given = tuple((credits or {}).get(one, NOT_SCORED) for one in nodes)
        root = ZERO_HASH if credits is None else PROMPTS
        return EpochUpdate(epoch, seed, leader, root, nodes, given, list_hash(self.nodes, PROMPTS))

    def signatures(self, update: EpochUpdate, count: int | None = None) -> list[bytes]:
        """Of the leader and the first others."""
        others = [key for key in self.keys if key.address != update.leader][: (count or self.needed) - 1]
        signers = sorted((*others, self.key(update.leader)), key=lambda key: address_to_bytes(key.address))
        return [typed_data.sign(update.message(), self.chain.domain, key.secret) for key in signers]

    def key(self, operator: Address) -> Key:
        """A member's."""
        return next(key for key in self.keys if key.address == operator)

    def proof(self, leader: Address, epoch: int, seed: Hash32) -> VrfProof:
        """The last leader's, with hints."""
        secret, alpha = vrf_secret(self.members.index(leader)), leader_alpha(self.chain.domain, epoch, seed)
        made = vrf.prove(secret, alpha)
        return VrfProof(made, tuple(vrf.hints(vrf.public_key(secret), alpha, made)))

    def reports(self, update: EpochUpdate, silent: int, count: int) -> list[SignedSilence]:
        """The first members' words that these nodes (as bits) did not answer."""
        message = SilenceReport(update.epoch, update.seed, list_hash(update.nodes, update.prompt_root), silent)
        keys = self.keys[:count]
        return [SignedSilence(silent, typed_data.sign(message, self.chain.domain, key.secret)) for key in keys]

    async def settle(
        self, update: EpochUpdate, proof: VrfProof = calls.NO_PROOF, reports: Sequence[SignedSilence] = ()
    ) -> TransactionReceipt:
        """Settle the epoch."""
        return await self.send(calls.settle(update, proof, reports, self.signatures(update)))


async def reputation_stage(
    url: str,
    payer: Key,
    mine: Callable[[int], None],
    rules: ReputationRules,
    fund: Callable[[Address, int], None],
    *,
    members: int = 7,
    nodes: int = 0,
    registry: Address | None = None,
) -> ReputationStage:
    """Deploy a committee and a Reputation, and enroll everybody; each member is its own owner.

    Args:
        registry: of a real market; without it every account is a node of its own.
    """
    keys = sorted((rater_key(number) for number in range(members)), key=lambda key: address_to_bytes(key.address))
    first = [CommitteeMember(key.address, Hash32(bytes(31) + b"\1"), "https://192.0.2.1:8543") for key in keys]
    committee = (await submit(url, committee_creation(first), payer)).created
    registry = registry or (await submit(url, REGISTRY_CREATION, payer)).created
    assert committee is not None
    assert registry is not None
    created = await submit(url, reputation_creation(committee, registry, rules), payer)
    assert created.created is not None
    chain = await Chain.connect(url, created.created)
    listed = tuple(node(number) for number in range(nodes))
    stage = ReputationStage(url, payer, mine, rules, tuple(keys), created.created, created.block, chain, listed)
    for number, key in enumerate(keys):
        fund(key.address, rules.bond + 10**18)
        point = vrf.public_key(vrf_secret(number))
        consent = typed_data.sign(EnrollRater(key.address, key.address, *point), chain.domain, key.secret)
        await stage.send(calls.enroll(key.address, point, consent, rules.bond), key)
    return stage
