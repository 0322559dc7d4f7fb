"""Contribution credits (contracts/organisations): who served an epoch, what that was worth, and what it buys.

PlanetServe, section 2.2. A credit is one byte of weights that a node held for one block of an epoch in which members
rated its answers. Everything here follows from events of the market's Registry and of Reputation, so that whoever has
them can compute every credit again (``served_in``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from troth.protocol.errors import InvalidField
from troth.protocol.identifiers import group_id
from troth.protocol.market.state import Party, State
from troth.protocol.market.types import NO_HASH, Role, Rules
from troth.protocol.market.views import rules_in
from troth.protocol.reputation_events import NodeRated, ReputationDeployed
from troth.protocol.types import Address, Hash32, Segment, Uint8, Uint32, Uint64

LAYER_SQUARES = 12
"""Weights of a layer over its width squared: four of attention, eight of a gated feed-forward."""
WIDEST = 2**20
"""Wider layers count as this wide."""
LONGEST_SOURCE = 256
"""Bytes that say where a deployment's model is found."""
MOST_REPLICAS, MOST_EPOCHS = 2**16 - 1, 2**32 - 1
GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class OrganisationsPlace:
    """An Organisations contract, and a block not after its deployment."""

    contract: Address
    start_block: int = 0


@dataclass(frozen=True, slots=True)
class Presence:
    """Where a node stood in the group of a segment when an epoch began, and when it was over."""

    node: Address
    first: Uint8
    end: Uint8
    place_before: Uint32
    place_after: Uint32


@dataclass(frozen=True, slots=True)
class Hosting:
    """A node's part of a deployment: layers [first_layer, end_layer) in the epochs [first, end)."""

    deployment: Uint64
    first: Uint64
    end: Uint64
    first_layer: Uint8
    end_layer: Uint8


def layer_bytes(rules: Rules) -> int:
    """Bytes that one layer of a class's model counts, as ``layerBytesOf`` has it."""
    width = min(rules.hidden_size, WIDEST)
    return LAYER_SQUARES * width * width * (4 if rules.dtype == 0 else 2)


def cost_of(rules: Rules, replicas: int, epochs: int, epoch_blocks: int) -> int:
    """Credits of ``replicas`` machines that host all layers for ``epochs``.

    Raises:
        InvalidField: no contract takes such numbers.
    """
    if not 0 < replicas <= MOST_REPLICAS:
        raise InvalidField(f"A deployment has 1 to {MOST_REPLICAS} replicas", replicas, "Choose another number.")
    if not 0 < epochs <= MOST_EPOCHS:
        raise InvalidField(f"A deployment lasts 1 to {MOST_EPOCHS} epochs", epochs, "Choose another time.")
    return rules.layers * layer_bytes(rules) * epoch_blocks * replicas * epochs


def gibibyte_days(credits: int, block_seconds: float) -> float:
    """Credits as people read them: gibibytes of weights, held for a day."""
    return credits * block_seconds / GIBIBYTE / 86_400


# ---- who served


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """What credits follow from: a market's folded events, Reputation, and all that it said of each node in order."""

    market: State
    reputation: ReputationDeployed
    ratings: Mapping[Address, Sequence[NodeRated]]

    @property
    def epoch_blocks(self) -> int:
        """Blocks of an epoch."""
        return self.reputation.rules.epoch_blocks

    def first_block(self, epoch: int) -> int:
        """The first block of an epoch."""
        return self.reputation.start_block + epoch * self.epoch_blocks

    def rating(self, node: Address, epoch: int) -> NodeRated | None:
        """What members said of a node in an epoch; None if nobody rated it."""
        return next((one for one in self.ratings.get(node, ()) if one.epoch == epoch), None)

    def is_trusted(self, node: Address) -> bool:
        """Whether a node's own score is not below the bar now."""
        said, rules = self.ratings.get(node, ()), self.reputation.rules
        return (said[-1].score if said else rules.initial) >= rules.bar


@dataclass(frozen=True, slots=True)
class ServedEpoch:
    """A node that stood in a group from the first block of an epoch to its end.

    Attributes:
        amount: bytes of the segment's layers times blocks: what it earns if ``refusal`` is empty, and what a
            deployment pays for it.
        refusal: why it earns nothing of its own in this epoch; empty where it does.
    """

    epoch: int
    owner: Address
    presence: Presence
    amount: int
    refusal: str

    @property
    def earned(self) -> int:
        """Credits that are made for it."""
        return 0 if self.refusal else self.amount


def served_in(epoch: int, record: ServiceRecord, hosting: Mapping[Address, Segment] | None = None) -> list[ServedEpoch]:
    """Every node that stood in a group through an epoch, each with its largest segment, in the order of addresses.

    Args:
        hosting: layers that nodes host for deployments; theirs are these, whatever else they stand for.
    """
    named = hosting or {}
    nodes = (party for party in record.market.parties.values() if party.role is Role.NODE)
    found = (_served(epoch, record, party, named.get(party.operator)) for party in nodes)
    return sorted((one for one in found if one is not None), key=lambda one: one.presence.node)


def served_by(epoch: int, record: ServiceRecord, node: Address, segment: Segment | None = None) -> ServedEpoch | None:
    """What one node served of a segment, or of its largest; None where it was away for a part of the epoch."""
    party = record.market.parties.get(node)
    return None if party is None or party.role is not Role.NODE else _served(epoch, record, party, segment)


def _served(epoch: int, record: ServiceRecord, party: Party, segment: Segment | None) -> ServedEpoch | None:
    begin, end = record.first_block(epoch), record.first_block(epoch + 1)
    hosted = party.hosted_at(begin)
    if hosted is None or party.execution_class == NO_HASH:
        return None
    groups = groups_within(party.execution_class, hosted)
    known = ((group, one) for group, one in groups.items() if group in record.market.sizes and segment in {None, one})
    # Of segments that are equally long the first counts: the contract takes either.
    for group, one in sorted(known, key=lambda pair: (pair[1].first - pair[1].end, pair[1])):
        places = tuple(_place(record.market, group, party.operator, block) for block in (begin, end))
        before, after = places
        if before is not None and after is not None:
            rules = rules_in(record.market, party.execution_class)
            amount = (one.end - one.first) * layer_bytes(rules) * record.epoch_blocks
            presence = Presence(party.operator, one.first, one.end, before, after)
            return ServedEpoch(epoch, party.owner, presence, amount, _refusal(record, party.operator, epoch))
    return None


def _place(market: State, group: Hash32, node: Address, block: int) -> int | None:
    """Where a node with seats stands in a group at a block; whoever is suspended has none."""
    members = market.members_at(group, block)
    return next((place for place, one in enumerate(members) if one.operator == node and one.seats), None)


def _refusal(record: ServiceRecord, node: Address, epoch: int) -> str:
    """Why nothing is earned: as the contract says it, from the node's last rating."""
    rating, rules = record.rating(node, epoch), record.reputation.rules
    if rating is None:
        return "no member rated an answer of it in this epoch"
    if rating.abnormal & 1:
        return "it was silent" if rating.silent else "its answers were abnormal"
    if rating.score < rules.bar:
        return "its score is below the bar"
    return ""


@lru_cache(maxsize=32)
def groups_within(execution_class: Hash32, hosted: Segment) -> Mapping[Hash32, Segment]:
    """All groups that a node with these layers may be in, each with its segment, which its hash does not tell."""
    segments = (
        Segment(first, end) for first in range(hosted.first, hosted.end) for end in range(first + 1, hosted.end + 1)
    )
    return {group_id(execution_class, segment): segment for segment in segments}
