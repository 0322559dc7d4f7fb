"""Terms: what a scheduler's price list says, and what of it the chain bears out.

A price list is the scheduler's word. Class, model, checks and caps are read from the chain, and prices that most of a
group's seats would not work for are refused: a scheduler could otherwise name prices at which only its friends serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from troth.client.errors import FeeTooHigh, ModelUnavailable
from troth.client.orders.wishes import PriceLimit
from troth.client.untrusted import read_hex, read_list, read_text, read_whole
from troth.protocol.amounts import Asset
from troth.protocol.errors import InvalidField, ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import prices
from troth.protocol.market.checks import MOST_SETTLED_BLOCKS
from troth.protocol.market.draws import GroupHistory
from troth.protocol.market.prices import BASIS_POINTS, MILLION, rules_of
from troth.protocol.market.signed import Order
from troth.protocol.market.state import State
from troth.protocol.market.suspicion import Suspect, raised_rate
from troth.protocol.market.types import NO_HASH, ExecutionClass, Rules
from troth.protocol.market.views import class_of
from troth.protocol.types import (
    SEGMENTS_LIMIT,
    Address,
    Hash32,
    ModelDescriptor,
    Segment,
    address_from_bytes,
    pack_ends,
    segments_from_ends,
)

LISTED_LIMIT = 256
ORGANISATIONS_LIMIT = 16
LARGEST_PRICE = (1 << 64) - 1
LARGEST_AMOUNT = (1 << 96) - 1
_OTHER = "Use another scheduler."


@dataclass(frozen=True, slots=True)
class QuotedReputation:
    """What a scheduler says that the committee says: nodes of a class, those that take work, and their mean score."""

    nodes: int
    trusted: int
    mean: float

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.trusted} of {self.nodes} nodes above the committee's bar, {self.mean:.2f} on average"


@dataclass(frozen=True, slots=True)
class PriceQuote:
    """One model of a price list, as its scheduler says it; prices in asset units per 10^9 positions."""

    execution_class: Hash32
    ends: tuple[int, ...]
    prompt_price: int
    cached_price: int
    written_price: int
    node_share: int
    check_rate: int
    check_price: int
    fee_cap: int
    name: str = ""
    context: int = 0
    reputation: QuotedReputation | None = None
    deployed_by: tuple[Address, ...] = ()
    settled: int = 0
    """How many blocks follow the one that an order names, beside the newest."""


@dataclass(frozen=True, slots=True)
class CheckedOffer:
    """A quote that the chain bears out, with class and model as they are registered."""

    quote: PriceQuote
    execution_class: ExecutionClass
    model: ModelDescriptor
    rules: Rules
    segments: tuple[Segment, ...]
    suspect: Suspect | None = None
    """Of those who may serve, who is under the strongest suspicion."""

    @property
    def check_rate(self) -> int:
        """The rate of checks unless the user names one: the class's at least, more where a node is suspected."""
        return self.raised(self.quote.check_rate)

    def raised(self, rate: int) -> int:
        """A rate as it may be here: the class's at least, and where a node is suspected that much more."""
        rate = max(rate, self.rules.least_check_rate)
        return rate if self.suspect is None else max(rate, raised_rate(self._least, self.suspect.strength))

    @property
    def _least(self) -> int:
        # What the suspicion raises is the class's or the scheduler's rate; a user who wants more has that.
        return max(self.quote.check_rate, self.rules.least_check_rate)

    @property
    def class_id(self) -> Hash32:
        """Id of the class."""
        return self.quote.execution_class

    def reference_block(self, newest: int) -> int:
        """The block that an order names now: one that no reorganisation takes back, as far as its scheduler says."""
        return max(newest - 1 - self.quote.settled, 0)

    def terms(self, reference_block: int = 0) -> Order:
        """An order of these terms and nothing else, as the rules of prices and draws take it."""
        quote = self.quote
        return Order(
            tab=NO_HASH,
            sequence=1,
            execution_class=quote.execution_class,
            request_hash=NO_HASH,
            ends=pack_ends(quote.ends),
            prompt_price=quote.prompt_price,
            cached_price=quote.cached_price,
            written_price=quote.written_price,
            node_share=quote.node_share,
            max_fee=self.rules.fee_cap,
            check_rate=self.check_rate,
            deadline=0,
            reference_block=reference_block,
            draw_hash=NO_HASH,
            tiles_hash=NO_HASH,
            reply_key=NO_HASH,
        )


def read_quotes(body: Mapping[str, Any]) -> tuple[PriceQuote, ...]:
    """The models of ``GET /v1/prices``; StreamError where it is malformed. Models of other networks are passed over."""
    entries = read_list(body.get("data"), LISTED_LIMIT)
    return tuple(_quote(one) for one in entries if isinstance(one, dict) and isinstance(one.get("troth"), dict))


def _quote(entry: Mapping[str, Any]) -> PriceQuote:
    own = entry["troth"]
    return PriceQuote(
        execution_class=Hash32(read_hex(own.get("class"), 32)),
        ends=tuple(_number(end, 255) for end in read_list(own.get("ends"), SEGMENTS_LIMIT)),
        prompt_price=_number(own.get("prompt_price"), LARGEST_PRICE),
        cached_price=_number(own.get("cached_price"), LARGEST_PRICE),
        written_price=_number(own.get("written_price"), LARGEST_PRICE),
        node_share=_number(own.get("node_share"), BASIS_POINTS),
        check_rate=_number(own.get("check_rate"), MILLION),
        check_price=_number(own.get("check_price"), LARGEST_AMOUNT),
        fee_cap=_number(own.get("fee_cap"), LARGEST_AMOUNT),
        name=read_text(entry.get("name", ""), 80),
        context=_number(entry.get("context_length") or 0, 1 << 32),
        reputation=_reputation(own.get("reputation")),
        deployed_by=tuple(_organisation(one) for one in read_list(own.get("deployed_by", []), ORGANISATIONS_LIMIT)),
        settled=_number(own.get("settled_blocks", 0), MOST_SETTLED_BLOCKS),
    )


def _organisation(said: object) -> Address:
    """Whose credits pay for machines of the class, as its scheduler says."""
    return address_from_bytes(read_hex(said.get("owner") if isinstance(said, dict) else None, 20))


def _reputation(said: object) -> QuotedReputation | None:
    if not isinstance(said, dict):
        return None
    nodes = _number(said.get("nodes"), 1 << 32)
    mean = _number(said.get("mean_thousandths"), 1000) / 1000
    return QuotedReputation(nodes, _number(said.get("trusted"), nodes), mean)


def _number(value: object, most: int) -> int:
    """A whole number, as JSON has it or as text: prices go beyond 2^53."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 40:
        value = int(value)
    return read_whole(value, 0, most)


def offer_of(state: State, quote: PriceQuote) -> CheckedOffer:
    """The offer; ModelUnavailable where the chain knows no such class, or says otherwise."""
    try:
        execution_class, model = class_of(state, quote.execution_class)
        segments = segments_from_ends(quote.ends, model.layers)
    except (ProtocolError, InvalidField) as error:
        raise ModelUnavailable(error.what, "0x" + quote.execution_class.hex(), _OTHER) from error
    rules = rules_of(execution_class, hidden_size=model.hidden_size, layers=model.layers)
    if (quote.check_price, quote.fee_cap) != (rules.check_price, rules.fee_cap):
        said, known = (quote.check_price, quote.fee_cap), (rules.check_price, rules.fee_cap)
        what = f"The price list says another price of checks, or another cap, than the class: {known}"
        raise ModelUnavailable(what, said, _OTHER)
    return CheckedOffer(quote, execution_class, model, rules, segments)


def require_served(offer: CheckedOffer, state: State, block: int) -> None:
    """ModelUnavailable unless, in each group, most seats serve at these prices, and as many nodes as may be drawn."""
    terms = offer.terms(block)
    for segment in offer.segments:
        limit = prices.bound(terms, segment.end - segment.first, offer.rules.layers)
        group = state.group(group_id(offer.class_id, segment))
        members = group.members_at(block)
        fit = [one for one in members if one.seats and prices.within(group.ask_at(one.operator, block), limit)]
        seats, served = sum(one.seats for one in members), sum(one.seats for one in fit)
        where = f"layers [{segment.first}, {segment.end})"
        if len(fit) < offer.rules.candidates:
            what = f"Only {len(fit)} of {len(members)} nodes serve {where} at the scheduler's prices"
            raise ModelUnavailable(what, f"{offer.rules.candidates} are needed", _OTHER)
        if 2 * served < seats:
            what = f"Most stake of {where} asks more than the scheduler's prices: {served} of {seats} seats would serve"
            raise ModelUnavailable(what, (offer.quote.prompt_price, offer.quote.written_price), _OTHER)


def require_within(offer: CheckedOffer, limit: PriceLimit, asset: Asset) -> None:
    """FeeTooHigh where a price is above what the user allows; ``asset``: in which both are shown."""
    quote = offer.quote
    for name, price, most in (
        ("read", max(quote.prompt_price, quote.cached_price), limit.prompt),
        ("written", quote.written_price, limit.written),
    ):
        if most is not None and price > most:
            what, shown = (
                f"Tokens {name} cost {asset.show_price(price)}",
                f"--max-price allows {asset.show_price(most)}",
            )
            raise FeeTooHigh(what, shown, "Raise --max-price, or use another scheduler.")


def groups_of(offer: CheckedOffer, state: State) -> tuple[GroupHistory, ...]:
    """The groups that serve and check the segments of an offer."""
    return tuple(state.group(group_id(offer.class_id, segment)) for segment in offer.segments)
