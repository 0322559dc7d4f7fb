"""The one model that a session offers, under the names by which a request may call it."""

from __future__ import annotations

import re
from typing import Any

from troth.client.gateway.errors import NotFound
from troth.client.gateway.prices import ether
from troth.client.market import Offer
from troth.client.session import Session

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")


def model_name(offer: Offer) -> str:
    """Its readable name: the execution class's, which says the model and how it is run."""
    return _UNUSUAL.sub("-", offer.rules.name).strip("-")[:64] or "0x" + offer.class_id.hex()


def names(offer: Offer) -> set[str]:
    """All that a request may call it: readable name, class id, model id, and the name of its family."""
    family = offer.model.architecture.split("/")[0]
    return {model_name(offer), "0x" + offer.class_id.hex(), "0x" + offer.rules.model.hex(), family}


def require_model(session: Session, asked: str) -> str:
    """The model's own name; NotFound if it is not what was asked for."""
    if asked not in names(session.offer) and asked.lower() not in names(session.offer):
        raise NotFound(
            "The model does not exist here",
            asked[:80],
            f"Use {model_name(session.offer)}; GET /v1/models lists what there is.",
            code="model_not_found",
            param="model",
        )
    return model_name(session.offer)


def model_json(session: Session, created: int) -> dict[str, Any]:
    """The model as /v1/models shows it."""
    offer = session.offer
    return {
        "id": model_name(offer),
        "object": "model",
        "created": created,
        "owned_by": "troth",
        "troth": {
            "execution_class": "0x" + offer.class_id.hex(),
            "model": "0x" + offer.rules.model.hex(),
            "family": offer.model.architecture.split("/")[0],
            "scheduler": offer.scheduler.operator,
            "fee": ether(offer.fee),
            "fee_wei": str(offer.fee),
            "context": session.language.context,
        },
    }
