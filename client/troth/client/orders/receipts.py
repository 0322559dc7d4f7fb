"""Receipts: what was asked and how far it came, and the file that proves one answer to anybody."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from troth.client.errors import AnswerUnavailable
from troth.client.orders.evidence import served_of
from troth.client.orders.following import FollowedCase, cases_of, fell
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.judging import case_command
from troth.client.orders.own_check import MODE, own_verdict_of, spoken
from troth.client.terminal import printable_line
from troth.protocol.amounts import Asset
from troth.protocol.market import lottery, receipt
from troth.protocol.market.bodies import Admitted
from troth.protocol.market.receipt import Receipt
from troth.protocol.market.signed import Opinion
from troth.protocol.market.state import State
from troth.protocol.market.views import class_of
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address

_ANSWERED = {
    Phase.ANSWERED,
    Phase.DRAWN_OVER,
    Phase.REVEALED,
    Phase.UNDRAWN,
    Phase.JUDGED,
    Phase.OPENING,
    Phase.CHECKED,
    Phase.REJECTED,
    Phase.UNCLEAR,
    Phase.REFUSED_CHECK,
}
_UNPAID = {Phase.REFUSED_CHECK, Phase.CONTRADICTED}
"""How an order ends for which nothing is acknowledged, whatever block comes."""


@dataclass(frozen=True, slots=True)
class OrderSummary:
    """One order as its user sees it: answered, drawn or not, checked, acknowledged, brought to court.

    ``waits``: why nothing pays it by itself, and who may end that; empty where the client goes on alone.
    """

    entry: OrderRecord
    drawn: bool | None
    case: str
    cases: tuple[FollowedCase, ...] = ()
    fell: bool = False
    waits: str = ""

    @property
    def nodes(self) -> tuple[Address, ...]:
        """Who was admitted to serve, a node for each segment; none before the draw was proven."""
        admitted = self.entry.read("admitted", Admitted)
        return () if admitted is None else admitted.nodes

    @property
    def answered(self) -> bool:
        """Whether every node signed what was received."""
        return self.entry.phase in _ANSWERED

    @property
    def own_check(self) -> dict[str, str] | None:
        """What the own model says of the answer; None where nobody wanted it asked, or nobody did yet."""
        own = own_verdict_of(self.entry)
        return None if own is None else {"opinion": spoken(own.opinion), "words": own.words}

    def to_json(self) -> dict[str, Any]:
        """As programs read it; amounts are decimal text in the asset's smallest unit."""
        entry = self.entry
        return {
            "order": entry.name,
            "tab": "0x" + entry.tab.hex(),
            "created": entry.created,
            "state": str(entry.phase),
            "answered": self.answered,
            "drawn": self.drawn,
            "checked": entry.phase is Phase.CHECKED,
            "own_check": self.own_check,
            "acknowledged": entry.paid is not None,
            "fee_units": None if entry.fee is None else str(entry.fee),
            "paid_units": None if entry.paid is None else str(entry.paid),
            "at_most_units": str(entry.most),
            "due_block": entry.due,
            "case": self.case,
            "cases": [one.to_json() for one in self.cases],
            "refund_units": str(entry.fee) if self.fell and entry.fee is not None else None,
            "tokens": len(entry.tokens),
            "nodes": list(self.nodes),
            "served_by": self.nodes[-1] if self.nodes else None,
            "failure": entry.failure,
            "waits": self.waits or None,
        }

    def lines(self, asset: Asset) -> list[str]:
        """As a person reads it."""
        entry = self.entry
        if entry.paid is not None:
            money = f"{asset.show(entry.paid)} paid"
        elif entry.fee is not None:
            undue = entry.due is None or entry.phase in _UNPAID
            money = f"{asset.show(entry.fee)} {'not due' if undue else f'from block {entry.due} on'}"
        else:
            money = f"at most {asset.show(entry.most)}"
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.created))
        lines = [f"{entry.name}  {created}  {entry.phase:<20} {money}"]
        drawn = {None: "not known yet", True: "yes: verifiers were drawn", False: "no"}[self.drawn]
        lines.append(f"  drawn      {drawn}")
        own = self.own_check
        if own is not None:
            lines.append(f"  own model  {own['opinion']}: {printable_line(own['words'])}")
        elif entry.mode == MODE:
            lines.append("  own model  has not computed it again")
        if entry.failure is not None:
            lines.append(f"  note       {printable_line(entry.failure)}")
        if self.waits:
            lines.append(f"  waits      {self.waits}")
        if self.case and not self.cases:
            lines.append(f"  case       {printable_line(self.case)}")
        lines += [f"  case       {one.words}" for one in self.cases]
        if self.fell and entry.fee is not None:
            lines.append(f"  refund     the fee of {asset.show(entry.fee)} is not owed any more")
        return lines


def shown(entry: OrderRecord, state: State) -> OrderSummary:
    """An order with what the chain says of it."""
    served = served_of(entry)
    drawn: bool | None = None
    if served is not None and served.secret is not None:
        drawn = lottery.is_drawn(served.order, served.secret, served.draw.beta)
    found = cases_of(entry, state)
    said = [one.outcome or "open" for one in found]
    own, verdict = entry.evidence.get("court", b"").decode("utf-8", "replace"), own_verdict_of(entry)
    doubted = verdict is not None and verdict.opinion is Opinion.REJECT
    if not own and (doubted or (entry.phase is Phase.REJECTED and entry.paid is None)):
        own = f"`{case_command(entry.identifier)}` brings it to the court"
    return OrderSummary(entry, drawn, ", ".join(said) or own, found, fell(state, entry), _waits(entry, state))


def _waits(entry: OrderRecord, state: State) -> str:
    """What becomes of an answer that nothing pays by itself."""
    if entry.phase is not Phase.REFUSED_CHECK or entry.paid is not None:
        return ""
    name, served = entry.name[:12], served_of(entry)
    claimed = "its scheduler may claim it on chain, and it is acknowledged then"
    ends = f"{claimed}; `troth client pay {name}` pays it before, if it was you who was away"
    if entry.fee is None:
        ends = claimed
    if served is None or state.deployed is None:
        return f"it can be checked no more: {ends}"
    last = lottery.secret_due(served.draw, state.deployed.parameters)
    return f"until block {last} a running client asks for its check, and `troth client summon {name}` can: then {ends}"


def proof_of(entry: OrderRecord, state: State, domain: Domain) -> Receipt:
    """The receipt of an answer, with nothing in it of prompt, answer or salt.

    Raises AnswerUnavailable before results and draw are here.
    """
    served = served_of(entry)
    if served is None:
        what = "There is nothing to prove: results and draw of this order are not here"
        raise AnswerUnavailable(what, entry.name, "`troth client receipts` shows its state.")
    execution_class, model = class_of(state, served.order.execution_class)
    party = state.parties[served.submission.tab.payee]
    words = served.words
    made = Receipt(
        version=receipt.VERSION,
        chain_id=domain.chain_id,
        bank=domain.contract,
        model=model,
        execution_class=execution_class,
        tab=served.submission.tab,
        vrf_x=party.vrf_key[0],
        vrf_y=party.vrf_key[1],
        order=served.submission.order,
        admission=served.admitted.admission,
        nodes=served.admitted.nodes,
        infer_proof=served.admitted.infer_proof,
        results=served.results.results,
        draw=served.lottery.draw,
        draw_proof=served.lottery.proof,
        secret=served.secret,
        checks=() if words is None else words.segments,
    )
    # What does not hold here is not handed out as a proof.
    receipt.verify(made)
    return made
