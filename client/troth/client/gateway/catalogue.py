"""The one model that a client offers, with its prices as OpenRouter's models have them."""

from __future__ import annotations

import re
from typing import Any

from troth.client.gateway.errors import NotFound
from troth.client.orders.running import Running
from troth.client.orders.terms import CheckedOffer
from troth.protocol.amounts import Asset, price_text
from troth.protocol.market.layers import without_layers
from troth.protocol.market.prices import MILLION

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")


def model_name(offer: CheckedOffer) -> str:
    """Its readable name: the execution class's, which says the model and how it is run."""
    return _UNUSUAL.sub("-", without_layers(offer.execution_class.name)).strip("-")[:64] or "0x" + offer.class_id.hex()


def names(offer: CheckedOffer) -> set[str]:
    """All that a request may call it: readable name, the class's name whole, as it is listed, and its first part, class
    id, model id, and name of its family."""
    family, execution = offer.model.architecture.split("/", maxsplit=1)[0], offer.execution_class
    listed = without_layers(execution.name)
    called = {execution.name, listed, listed.split("/", maxsplit=1)[0].lower(), family} - {""}
    return {model_name(offer), *called, "0x" + offer.class_id.hex(), "0x" + execution.model.hex()}


def require_model(offer: CheckedOffer, asked: str) -> str:
    """The model's own name; NotFound if it is not what was asked for."""
    if asked not in names(offer) and asked.lower() not in names(offer):
        remedy = f"Use {model_name(offer)}; GET /v1/models lists what there is."
        raise NotFound("The model does not exist here", asked[:80], remedy, code="model_not_found", param="model")
    return model_name(offer)


def model_json(running: Running, offer: CheckedOffer, created: int) -> dict[str, Any]:
    """The model as /v1/models shows it."""
    quote, language = offer.quote, running.session.language
    context = quote.context if language is None else language.context
    return {
        "id": model_name(offer),
        "object": "model",
        "created": created,
        "owned_by": "troth",
        "context_length": context,
        "pricing": pricing(offer, running.asset),
        "troth": {
            "execution_class": "0x" + offer.class_id.hex(),
            "model": "0x" + offer.execution_class.model.hex(),
            "family": offer.model.architecture.split("/", maxsplit=1)[0],
            "asset": running.asset.symbol,
            "prompt_price": str(quote.prompt_price),
            "cached_price": str(quote.cached_price),
            "written_price": str(quote.written_price),
            "check_rate": offer.check_rate,
            "fee_cap": str(offer.rules.fee_cap),
            "schedulers": [tab_context.scheduler for tab_context in running.session.usable()],
            "context": context,
        },
    }


def pricing(offer: CheckedOffer, asset: Asset) -> dict[str, str]:
    """Whole asset units a token, as decimal text: with the price of the checks, at the rate that is listed."""
    quote, rules = offer.quote, offer.rules
    checks = rules.check_price * rules.verifiers * len(offer.segments) * offer.check_rate // MILLION
    return {
        "prompt": price_text(quote.prompt_price + checks, asset.decimals),
        "completion": price_text(quote.written_price + checks, asset.decimals),
        "input_cache_read": price_text(quote.cached_price + checks, asset.decimals),
    }
