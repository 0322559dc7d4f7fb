"""Reputation by challenge (contracts/reputation/Reputation.sol): what members sign, who leads, and how a score moves.

PlanetServe, section 3.4. Scores, credits and weights are whole numbers of parts in 10^9, computed as on chain, so that
whoever has a contract's events can compute every score again (``reputation_events``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market.types import Uint256
from troth.protocol.typed_data import Domain
from troth.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Hash32,
    Solidity,
    Uint8,
    Uint32,
    Uint64,
    Uint96,
    address_to_bytes,
)

Uint24 = Annotated[int, Solidity("uint24")]

ONE = 10**9
"""The one of scores, credits and weights."""
NOT_SCORED = 2**32 - 1
"""A credit that says: nobody scored this node in this epoch. Its score stays."""
MAXIMUM_NODES = 256
"""Of one epoch's list: a report of silence has a bit for each."""
FOR_EVER = 2**32 - 1
"""End of a rater that does not leave."""
LEAST_REPUTATION = 0.4
"""Below it a node is not trusted (PlanetServe, section 4.3) and gets nothing."""
UNRATED = 1.0
"""Reputation of everybody where no contract rates nodes."""

Reputation = Callable[[Address], float]
"""The committee's word about a node, 0 to 1."""


def everybody_trusted(_node: Address) -> float:
    """The word where no contract rates nodes."""
    return UNRATED


@dataclass(frozen=True, slots=True)
class ReputationPlace:
    """A Reputation contract, and a block not after its deployment."""

    contract: Address
    start_block: int = 0


@dataclass(frozen=True, slots=True)
class ReputationRules:
    """What a deployment decides once; the fields are explained at the contract's struct."""

    epoch_blocks: Uint32
    keep: Uint32
    take: Uint32
    abnormal: Uint32
    bar: Uint32
    initial: Uint32
    window: Uint8
    sensitivity: Uint8
    leave_blocks: Uint32
    bond: Uint96


def paper_rules(epoch_blocks: int, bond: int) -> ReputationRules:
    """α = 0.4, β = 0.6, W = 5, γ = 1/5 and a bar of 0.4 (sections 3.4 and 4.3); τ = 0.9 is for normalised credits.

    The paper says nothing of newcomers: here they begin at the bar.
    """
    tenth = ONE // 10
    return ReputationRules(
        epoch_blocks=epoch_blocks,
        keep=4 * tenth,
        take=6 * tenth,
        abnormal=9 * tenth,
        bar=4 * tenth,
        initial=4 * tenth,
        window=5,
        sensitivity=5,
        leave_blocks=2 * epoch_blocks,
        bond=bond,
    )


# ---- what is signed


@dataclass(frozen=True, slots=True)
class EnrollRater:
    """EIP-712 message of a member: this owner bonds it, and this is its VRF key."""

    owner: Address
    operator: Address
    vrf_x: Uint256
    vrf_y: Uint256


@dataclass(frozen=True, slots=True)
class ReputationUpdate:
    """EIP-712 message of more than 2/3 of the members; lists as the hash of their words (``EpochUpdate.message``)."""

    epoch: Uint64
    seed: Hash32
    leader: Address
    prompt_root: Hash32
    nodes_hash: Hash32
    credits_hash: Hash32
    next_list: Hash32


@dataclass(frozen=True, slots=True)
class SilenceReport:
    """EIP-712 message of a member: nodes whose bit is set did not answer its own attempts; ``list`` has the nodes."""

    epoch: Uint64
    seed: Hash32
    list: Hash32
    silent: Uint256


@dataclass(frozen=True, slots=True)
class EpochUpdate:
    """What members agree on at the end of an epoch.

    Attributes:
        nodes: operators of all that were to be examined, ascending, ``MAXIMUM_NODES`` at most.
        credits: of each, 0 to ``ONE``, or ``NOT_SCORED``.
        next_list: ``list_hash`` of the epoch that follows, or zero.
    """

    epoch: int
    seed: Hash32
    leader: Address
    prompt_root: Hash32
    nodes: tuple[Address, ...]
    credits: tuple[int, ...]
    next_list: Hash32

    def message(self) -> ReputationUpdate:
        """What is signed of it."""
        nodes, credits = nodes_hash(self.nodes), _words_hash(self.credits)
        return ReputationUpdate(self.epoch, self.seed, self.leader, self.prompt_root, nodes, credits, self.next_list)


@dataclass(frozen=True, slots=True)
class SignedSilence:
    """A report as the contract takes it."""

    silent: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class UpdateEvidence:
    """One of two updates that a member signed for one epoch and seed."""

    leader: Address
    prompt_root: Hash32
    nodes: Hash32
    credits: Hash32
    next_list: Hash32
    signature: bytes

    @classmethod
    def of(cls, message: ReputationUpdate, signature: bytes) -> UpdateEvidence:
        """A signed message as evidence."""
        lists = message.nodes_hash, message.credits_hash
        return cls(message.leader, message.prompt_root, *lists, message.next_list, signature)


def nodes_hash(nodes: Sequence[Address]) -> Hash32:
    """keccak256 of the nodes' words."""
    return Hash32(keccak256(b"".join(bytes(12) + address_to_bytes(node) for node in nodes)))


def list_hash(nodes: Sequence[Address], prompt_root: Hash32) -> Hash32:
    """What an epoch fixes for the next one: whom it examines, and a root over its prompts' commitments.

    Raises InvalidField for too many nodes, or nodes that do not ascend.
    """
    if len(nodes) > MAXIMUM_NODES:
        raise InvalidField(f"An epoch examines at most {MAXIMUM_NODES} nodes", len(nodes), "Take turns.")
    if list(nodes) != sorted(set(nodes), key=address_to_bytes):
        raise InvalidField("Nodes ascend, each once", tuple(nodes), "Sort them by address.")
    return Hash32(abi_keccak(["bytes32", "bytes32"], [nodes_hash(nodes), prompt_root]))


def prompt_commitment(salt: bytes, prompt: str) -> Hash32:
    """What hides a prompt until it is opened: keccak256(salt ‖ prompt), with a salt of 32 fresh bytes."""
    if len(salt) != 32:
        raise InvalidField("A salt has 32 bytes", len(salt), "Take 32 fresh ones.")
    return Hash32(keccak256(salt + prompt.encode()))


def prompt_root(commitments: Sequence[Hash32]) -> Hash32:
    """keccak256 over all commitments in their order."""
    return Hash32(keccak256(b"".join(commitments)))


def _words_hash(values: Iterable[int]) -> Hash32:
    return Hash32(keccak256(b"".join(value.to_bytes(32, "big") for value in values)))


# ---- members


@dataclass(frozen=True, slots=True)
class Rater:
    """A member of the Committee that is bonded; it counts in the epochs ``first`` to before ``end``."""

    owner: Address
    first: Uint32
    end: Uint32
    exit_block: Uint32
    vrf_x: Uint256
    vrf_y: Uint256

    def counts(self, epoch: int) -> bool:
        """Whether it signs in an epoch."""
        return self.owner != ZERO_ADDRESS and self.first <= epoch < self.end


def leader_alpha(domain: Domain, epoch: int, seed: Hash32) -> Hash32:
    """What the last leader proves by VRF; ``seed`` is the hash of the last block of the epoch before."""
    values = [domain.chain_id, domain.contract, epoch, seed]
    return Hash32(abi_keccak(["uint256", "address", "uint64", "bytes32"], values))


def leader_by(raters: Mapping[Address, Rater], members: Iterable[Address], epoch: int, randomness: bytes) -> Address:
    """The member with the least rank of those that count; ``ZERO_ADDRESS`` if there is none.

    Ranks do not depend on who else is there, so that nobody can choose another leader by leaving.
    """
    able = [member for member in members if member in raters and raters[member].counts(epoch)]
    return min(able, key=lambda member: abi_keccak(["bytes32", "address"], [randomness, member]), default=ZERO_ADDRESS)


# ---- scores


@dataclass(frozen=True, slots=True)
class Standing:
    """How a node stands; ``abnormal`` has a bit for each of the last W credits, the newest lowest."""

    score: Uint32
    abnormal: Uint8
    rated: Uint24
    last_epoch: Uint32
    owner: Address


def newcomer(rules: ReputationRules, owner: Address) -> Standing:
    """A node that nobody has rated."""
    return Standing(rules.initial, 0, 0, 0, owner)


def rated(before: Standing, credit: int, epoch: int, rules: ReputationRules, *, capped: bool = True) -> Standing:
    """How a node stands after a credit of 0 to ``ONE``; each division rounds down, as in ``Scores.sol``.

    Args:
        capped: whether the coefficient of the punishment is at most β. The paper's is above it for few abnormal
            credits, which rewards them; False is for its figures.
    """
    bits = (before.abnormal << 1 | (credit < rules.abnormal)) & ((1 << rules.window) - 1)
    weighted = rules.take * credit // ONE
    penalty = bits.bit_count() * rules.sensitivity
    if penalty > rules.window:
        punished = (rules.window + 1) * credit // (rules.window + penalty + 2)
        weighted = min(punished, weighted) if capped else punished
    score = rules.keep * before.score // ONE + weighted
    return Standing(score, bits, min(before.rated + 1, 2**24 - 1), epoch, before.owner)


def shared_scores(standings: Mapping[Address, Standing]) -> dict[Address, int]:
    """The scores by which nodes are given work: an owner's nodes share the mean of theirs, and none is above its own.

    So a bad node pulls its owner's others down, and their scores never lift it above the bar.
    """
    owned: dict[Address, list[int]] = {}
    for standing in standings.values():
        owned.setdefault(standing.owner, []).append(standing.score)
    means = {owner: sum(scores) // len(scores) for owner, scores in owned.items()}
    return {node: min(standing.score, means[standing.owner]) for node, standing in standings.items()}
