"""Claims of nodes on this scheduler's tabs: who claims more than its work is worth has to show it, number by number."""

from __future__ import annotations

import logging

from troth.protocol.market import claims
from troth.protocol.market.calls import build
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.scheduler.orders.desk import Desk
from troth.scheduler.tabs.node_tabs import NodeTab

log = logging.getLogger(__name__)

MOST_OBJECTIONS = 4
"""Open at once: each answered one tells what its number was claimed for, and one that stays open strikes the claim."""


async def attend_nodes_claims(desk: Desk) -> None:
    """Object to claims above what is known to be owed, and strike those whose objections were not answered."""
    block, parameters = desk.ledger.block, desk.ledger.parameters
    for record in desk.ledger.state.tabs.values():
        claim = record.claim
        if record.tab.payer != desk.operator.address or claim is None:
            continue
        for number, objection in claim.objections.items():
            if block > objection.deadline:
                call = build(desk.ledger.contracts, Part.BANK, "strike", record.tab, claim.state, number)
                await desk.ledger.execute(call)
                break  # the claim is gone with its first strike
        else:
            if block < claim.state.settles_at - parameters.answer_window:
                await _object(desk, record, claim)


async def _object(desk: Desk, record: TabRecord, claim: ClaimRecord) -> None:
    held = desk.node_tabs.held(record.tab.payee)
    worth = known_worth(held, claim)
    # A number that was acknowledged since the claim's voucher is in what was spent: owed is never both.
    if claim.state.owed <= held.book.spent + sum(worth.values()) or len(claim.objections) >= MOST_OBJECTIONS:
        return
    open_ = [number for number in sorted(worth, key=lambda one: worth[one]) if number not in claim.objections]
    for number in open_[: MOST_OBJECTIONS - len(claim.objections)]:
        log.warning("number %d of a claim of %s is objected to", number, record.tab.payee)
        call = build(desk.ledger.contracts, Part.BANK, "object", record.tab, claim.state, number)
        await desk.ledger.execute(call)


def known_worth(held: NodeTab, claim: ClaimRecord) -> dict[int, int]:
    """What each claimed number can be worth by this scheduler's books: its fee, or its bound while that is open."""
    one = claim.state.claim
    numbers = (number for number in range(one.first, one.last + 1) if claims.is_claimed(one, number))
    found: dict[int, int] = {}
    for number in numbers:
        owed = held.owed.get(number)
        bound = held.book.bounds.get(number, 0)
        found[number] = bound if owed is None or owed.fee is None else owed.fee
    return found
