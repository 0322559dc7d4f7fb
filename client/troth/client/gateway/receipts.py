"""A completion's receipt: the orders that were made for each choice, and how far they came."""

from __future__ import annotations

from typing import Any

from troth.client.gateway.completion import GOOD
from troth.client.gateway.errors import NotFound
from troth.client.gateway.ledger import CompletionLedger
from troth.client.gateway.shapes import whole_amount
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.receipts import shown
from troth.client.orders.running import Running

_ENDED = {Phase.UNDRAWN, Phase.CHECKED, Phase.REJECTED, Phase.UNCLEAR, Phase.REFUSED_CHECK, Phase.CONTRADICTED}


def receipt_json(ledger: CompletionLedger, running: Running, identifier: str) -> dict[str, Any]:
    """The receipt of a completion; NotFound if it is none of this gateway's."""
    entry = ledger.find(identifier)
    if entry is None:
        remedy = "Use the id of a completion that this gateway made."
        raise NotFound("There is no such receipt", identifier[:80], remedy, code="receipt_not_found")
    choices = [running.session.journal.of_question(one.removeprefix("0x")) for one in entry.tasks]
    orders = [_order_json(running, one) for made in choices for one in made]
    outcomes = [_outcome(made) for made in choices]
    cost = sum(_cost(made) for made in choices)
    pending = "pending" in outcomes
    return {
        "id": entry.identifier,
        "object": "troth.receipt",
        "created": entry.created,
        "model": entry.model,
        "outcome": "pending" if pending else next((one for one in outcomes if one not in GOOD), outcomes[0]),
        "cost": whole_amount(cost, running.asset.decimals),
        "cost_units": str(cost),
        "asset": running.asset.symbol,
        "note": entry.note,
        "block": running.session.block,
        "tasks": orders,
    }


def _order_json(running: Running, entry: OrderRecord) -> dict[str, Any]:
    language = running.session.language
    answer = None if language is None else language.decode(list(entry.tokens))
    return shown(entry, running.session.state).to_json() | {"answer": answer}


def _outcome(made: list[OrderRecord]) -> str:
    """That of the last order of a question: earlier ones failed midway."""
    if not made:
        return "not ordered"
    last = made[-1]
    if last.phase in _ENDED or last.phase is Phase.FAILED:
        return str(last.phase)
    return "pending"


def _cost(made: list[OrderRecord]) -> int:
    """What was paid, or will be."""
    good = {Phase.UNDRAWN, Phase.CHECKED, Phase.UNCLEAR}
    return sum(one.paid if one.paid is not None else (one.fee or 0) if one.phase in good else 0 for one in made)
