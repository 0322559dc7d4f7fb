"""Models on offer: what schedulers serve, by name and price, as far as the chain bears it out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from troth.client.errors import ModelUnavailable
from troth.client.orders.session import FAILURES, PayerSession
from troth.client.orders.terms import CheckedOffer, offer_of, read_quotes, require_served
from troth.client.terminal import printable_line
from troth.protocol.amounts import Asset
from troth.protocol.market.layers import without_layers
from troth.protocol.market.state import Party
from troth.protocol.market.types import Role
from troth.protocol.types import Address

MOST_SCHEDULERS = 16
ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class ModelOnOffer:
    """A model at one scheduler. ``tab``: whether this client has a usable tab there."""

    scheduler: Address
    offer: CheckedOffer
    tab: bool
    hindrance: str = ""

    @property
    def name(self) -> str:
        """The class's name on chain; anybody may register one, so that it proves nothing."""
        return printable_line(without_layers(self.offer.execution_class.name), 80)

    def line(self, asset: Asset) -> str:
        """For people."""
        quote = self.offer.quote
        prices = f"{asset.show_price(quote.prompt_price)} read, {asset.show_price(quote.written_price)} written"
        exact = "exact" if self.offer.rules.exact else "tolerant"
        where = f"{self.scheduler[:10]}, {'tab' if self.tab else 'no tab'}"
        rated = f"; {quote.reputation.words}" if quote.reputation is not None else ""
        brought = "; brought by " + ", ".join(one[:10] for one in quote.deployed_by) if quote.deployed_by else ""
        hindrance = f"; {self.hindrance}" if self.hindrance else ""
        return f"{self.name}: {prices}; {quote.context:,} tokens, {exact}; at {where}{rated}{brought}{hindrance}"

    def to_json(self, asset: Asset) -> dict[str, Any]:
        """For programs."""
        quote = self.offer.quote
        return {
            "name": self.name,
            "execution_class": "0x" + self.offer.class_id.hex(),
            "scheduler": self.scheduler,
            "tab": self.tab,
            "prompt_units_per_billion": str(quote.prompt_price),
            "cached_units_per_billion": str(quote.cached_price),
            "written_units_per_billion": str(quote.written_price),
            "context_tokens": quote.context,
            "exact": self.offer.rules.exact,
            "reputation": None if quote.reputation is None else asdict(quote.reputation),
            "deployed_by": list(quote.deployed_by),
            "hindrance": self.hindrance,
            "asset": asset.symbol,
            "asset_decimals": asset.decimals,
        }

    async def use(self, session: PayerSession) -> None:
        """Ask this model from now on; raises what `PayerSession.ready` raises, and nothing changed then."""
        before = (session.class_id, session.scheduler, session.language)
        session.class_id, session.scheduler, session.language = self.offer.class_id, self.scheduler, None
        for tab_context in session.tab_contexts.values():
            tab_context.offer = None
        try:
            await session.ready()
        except BaseException:
            session.class_id, session.scheduler, session.language = before
            for tab_context in session.tab_contexts.values():
                tab_context.offer = None
            raise


async def models_on_offer(session: PayerSession) -> list[ModelOnOffer]:
    """What every scheduler that takes orders has, at most sixteen of them, cheapest written tokens first.

    They are asked the way that questions go: through the overlay, where one is configured. Who does not answer in time
    is left out.
    """
    parties = [one for one in session.state.parties.values() if one.role is Role.SCHEDULER and not one.exit_block]
    found = await asyncio.gather(*(_offers(session, one) for one in parties[:MOST_SCHEDULERS]))
    return sorted(
        (one for offers in found for one in offers), key=lambda one: (one.offer.quote.written_price, one.name)
    )


async def _offers(session: PayerSession, party: Party) -> list[ModelOnOffer]:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            quotes = read_quotes(await (await session.connect(party)).prices())
    except FAILURES:
        return []
    tab = session.has_tab(party.operator)
    found = []
    for quote in quotes:
        try:
            offer = offer_of(session.state, quote)
        except ModelUnavailable:
            continue
        try:
            require_served(offer, session.state, offer.reference_block(session.block))
            hindrance = ""
        except ModelUnavailable as error:
            hindrance = error.what
        found.append(ModelOnOffer(party.operator, offer, tab, hindrance))
    return found


def choose_model(offered: Sequence[ModelOnOffer], text: str) -> ModelOnOffer:
    """One of a list, by its number or name; ModelUnavailable where that is none, or not only one."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= len(offered):
        return offered[int(text) - 1]
    found = [one for one in offered if one.name.lower() == text.lower()] if text else []
    found = found or [one for one in offered if text and one.name.lower().startswith(text.lower())]
    # Of the same class at several schedulers the first is the cheapest; two classes of one name are two things.
    if found and len({one.offer.class_id for one in found}) == 1:
        return next((one for one in found if one.tab), found[0])
    names = ", ".join(one.name for one in found or offered) or "none"
    what = "Several models have such a name" if found else "There is no such model on offer"
    raise ModelUnavailable(
        what, printable_line(text or "nothing"), f"Take a number of /models: {printable_line(names)}."
    )
