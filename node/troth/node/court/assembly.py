"""A node's whole court: what it judges, defends, holds and brings, with one account and one context."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from troth.cases.carrying import Carrier
from troth.cases.context import CaseContext
from troth.cases.courtroom import LiveCourtroom
from troth.cases.defending import Defender
from troth.cases.gathering import Gatherer
from troth.cases.inbox import CaseInbox
from troth.cases.journal import CaseJournal
from troth.cases.materials import SALT_BYTES
from troth.cases.office import Office
from troth.cases.opening import Opener
from troth.cases.parties import ChannelParties
from troth.cases.record import Record
from troth.cases.reviewing import Reviewer
from troth.chain.duty import Duty
from troth.chain.keystore import Key
from troth.chain.market import Market
from troth.chain.market_follower import MarketFollower
from troth.node.court.bringing import Bringer
from troth.node.court.dispute_chain import DISPUTES_FOLDER, LiveDisputes
from troth.node.court.holding import NodeHoldings
from troth.node.court.inquiring import ChannelInquirer
from troth.node.court.own_disputes import OwnDisputes
from troth.node.court.proving import Prover
from troth.node.court.recomputing import EngineRecompute
from troth.node.models.folder import ModelFolder
from troth.node.orders.context import NodeContext
from troth.protocol.market.court_money import bond_of
from troth.protocol.market.views import class_of, parameters_of, rules_in
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32


@dataclass(slots=True)
class NodeCourt:
    """Close it after its tasks have ended."""

    case_context: CaseContext
    office: Office
    reviewer: Reviewer
    defender: Defender
    bringer: Bringer
    parties: ChannelParties
    record: Record
    disputes: OwnDisputes | None = None

    def tasks(self) -> tuple[Duty, ...]:
        """What runs for as long as the node; each watches the chain by itself and waits its faults out."""
        watching: Callable[..., Duty] = partial(Duty, stale_after=math.inf)
        return (
            watching("judging in the court", self.reviewer.run),
            watching("defending results in the court", self.defender.run),
            watching("carrying cases on", self.office.carrier.run),
            *(() if self.disputes is None else (Duty("answering disputes", self.disputes.step, every=1.0),)),
        )

    def disputes_over(self, order: Hash32, segment: int) -> bool:
        """Whether a dispute needs what is kept of a segment."""
        return self.disputes is not None and self.disputes.keeps(order, segment)

    async def close(self) -> None:
        """Close connections and files."""
        if self.disputes is not None:
            await self.disputes.close()
        await self.parties.close()
        self.office.journal.close()
        self.record.close()


@dataclass(frozen=True, slots=True)
class FollowedDeployment:
    """The deployment, as it is followed, and the account that sends."""

    market: Market
    follower: MarketFollower
    key: Key
    disputes: LiveDisputes | None = None


def make_court(
    context: NodeContext,
    chain: FollowedDeployment,
    folder: Path,
    case_context: CaseContext,
    *,
    most_bond: int | None,
    accuse_wei: int,
    model: Callable[[], ModelFolder],
) -> NodeCourt:
    """The court of a node whose engine is up; ``case_context`` answers for all of it from now on.

    ``most_bond`` None: what the bond of the longest order costs that this node serves. ``accuse_wei``: the most gas
    money for a proof of a wrong token, or gas and bond of a dispute; ``model``: the folder whose weights make it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    courtroom = LiveCourtroom(chain.market, chain.follower, chain.key)
    parties = ChannelParties(context.operator, lambda: chain.follower.state)
    holdings = NodeHoldings(context)
    gatherer = Gatherer(context.me, CaseInbox(folder / "inbox", context.me, most_rows(context)), parties)
    record = Record(folder / "pledged")
    reviewer = Reviewer(courtroom, context.operator, EngineRecompute(context), gatherer, record)
    defender = Defender(courtroom, context.me, holdings)
    limit = longest_bond(context) if most_bond is None else most_bond
    office = _office(courtroom, folder / "cases.sqlite", parties, limit)
    bringer = Bringer(context, office, ChannelInquirer(context.operator, lambda: chain.follower.state), limit)
    bringer.prover = Prover(context, office.opener, model, accuse_wei) if accuse_wei else None
    case_context.reviewer, case_context.defender = reviewer, defender
    case_context.holdings, case_context.courtroom = holdings, courtroom
    disputes = chain.disputes
    if disputes is not None:
        bringer.disputes = OwnDisputes(context, disputes, folder.parent / DISPUTES_FOLDER, model, accuse_wei)
    return NodeCourt(case_context, office, reviewer, defender, bringer, parties, record, bringer.disputes)


def _office(courtroom: LiveCourtroom, journal_path: Path, parties: ChannelParties, most_bond: int) -> Office:
    journal = CaseJournal(journal_path)
    opener = Opener(courtroom, journal)
    return Office(courtroom, journal, opener, Carrier(courtroom, parties, journal, opener=opener), most_bond)


def most_rows(context: NodeContext) -> int:
    """Bytes of the longest trace that this node judges, with the salt before it."""
    definition, descriptor = class_of(context.ground.state, context.execution_class)
    return SALT_BYTES + context.limits.positions * row_size(descriptor.hidden_size, Dtype(definition.dtype))


def longest_bond(context: NodeContext) -> int:
    """The bond of a case over the longest order that this node serves."""
    rules = rules_in(context.ground.state, context.execution_class)
    return bond_of(rules, context.limits.positions, parameters_of(context.ground.state).gas_price)
