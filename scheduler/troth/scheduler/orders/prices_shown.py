"""GET /v1/info and GET /v1/prices: who this scheduler is, and what it offers for how much."""

from __future__ import annotations

from troth.protocol.market.types import NO_ADDRESS
from troth.scheduler.errors import UnknownClass
from troth.scheduler.orders.desk import Desk
from troth.scheduler.orders.offers import Offer, offers_checks, price_entry

COIN_DECIMALS = 18


def shown_info(desk: Desk) -> dict[str, object]:
    """The scheduler, its deployment, and its classes."""
    state = desk.ledger.state
    assert state.deployed is not None
    domain = desk.operator.domain
    return {
        "operator": desk.operator.address,
        "factory": desk.factory,
        "bank": domain.contract,
        "chain_id": domain.chain_id,
        "block": desk.ledger.block,
        "classes": [_class(offer) for offer in _offers(desk)],
    }


def _class(offer: Offer) -> dict[str, object]:
    return {
        "id": "0x" + offer.served.class_id.hex(),
        "model": "0x" + offer.execution_class.model.hex(),
        "name": offer.execution_class.name,
        "ends": list(offer.ends),
        "placement": "auto" if offer.served.placing else "fixed",
        "context": offer.served.context,
    }


def price_list(desk: Desk) -> dict[str, object]:
    """The form of OpenRouter's models list; with less than k + 6 owners in a group a class offers no checks."""
    state, block = desk.ledger.state, desk.ledger.block
    coin = desk.ledger.parameters.asset == NO_ADDRESS
    decimals = COIN_DECIMALS if coin else desk.asset_decimals
    listed = [
        price_entry(offer, checks=offers_checks(offer, state, block), decimals=decimals) for offer in _offers(desk)
    ]
    return {"data": listed}


def _offers(desk: Desk) -> list[Offer]:
    found = []
    for class_id in desk.offers.ids():
        try:
            found.append(desk.offers.offer(class_id, desk.ledger.state))
        except UnknownClass:
            continue
    return found
