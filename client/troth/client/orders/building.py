"""Building an order: number, secrets, bounds and signature, in the transaction that gives its number out."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace

from troth.client.errors import ContextTooShort, FeeTooHigh, PromptError
from troth.client.orders.journal import OrderRecord
from troth.client.orders.session import PayerSession, TabContext
from troth.client.orders.terms import CheckedOffer, require_within
from troth.client.orders.wishes import Wish
from troth.client.tabs.keys import master_of, reply_secret
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.market import life, lottery, messages, prices
from troth.protocol.market.bodies import Submission
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Voucher
from troth.protocol.request import Request, canonical_bytes, request_hash
from troth.protocol.types import Hash32
from troth.transport.sealing import public_key

LIFETIME_SECONDS = 600
"""How long a scheduler may take to admit an order: clocks differ. Later, nothing can be charged."""


def request_of(offer: CheckedOffer, prompt: tuple[int, ...], end_tokens: tuple[int, ...], wish: Wish) -> Request:
    """The request that an order commits to."""
    choices = wish.choices
    return Request(
        offer.class_id,
        prompt,
        choices.max_tokens,
        choices.temperature_millionths,
        choices.top_p_millionths,
        tuple(sorted(set(end_tokens))),
        choices.transforms,
        choices.top_k,
        choices.min_p_millionths,
        may_end_early=choices.max_tokens > 1,
    )


def require_room(prompt: tuple[int, ...], wish: Wish, context: int) -> None:
    """Raise PromptError where prompt and answer together do not fit the model's context."""
    if not prompt:
        raise PromptError("The prompt has no tokens", 0, "Write a question.")
    needed = len(prompt) + wish.choices.max_tokens
    if context and needed > context:
        raise ContextTooShort(needed, context)


def check_rate_of(offer: CheckedOffer, wish: Wish) -> int:
    """The rate at which the answer is checked: what the user wants, at least the class's smallest; see
    ``CheckedOffer.raised``."""
    if wish.check.mode in {"self", "court"}:
        return offer.rules.least_check_rate
    return offer.raised(wish.check.rate or offer.quote.check_rate)


def most_of(offer: CheckedOffer, wish: Wish, prompt: int, *, spent: int = 0) -> int:
    """The most that an order can cost; FeeTooHigh above what the user allows.

    ``spent``: what earlier orders of the same question may still cost.
    """
    require_within(offer, wish.price, wish.asset)
    terms = replace(offer.terms(), check_rate=check_rate_of(offer, wish))
    written = wish.choices.max_tokens
    most = max(prices.most(terms, offer.rules, len(offer.segments), prompt=prompt, written=written), 1)
    if most > offer.rules.fee_cap:
        what, shown = (
            f"This request may cost {wish.asset.show(most)}",
            f"a request of this class costs {wish.asset.show(offer.rules.fee_cap)} at most",
        )
        raise FeeTooHigh(what, shown, "Lower --max-tokens, or use another class.")
    limit = wish.choices.max_cost
    if limit is not None and spent + most > limit:
        what, shown = (
            f"This request may cost {wish.asset.show(spent + most)}",
            f"--max-cost is {wish.asset.show(limit)}",
        )
        raise FeeTooHigh(what, shown, "Raise --max-cost, lower --max-tokens, or use another class.")
    return most


def place(  # noqa: PLR0917
    session: PayerSession,
    tab_context: TabContext,
    offer: CheckedOffer,
    prompt: tuple[int, ...],
    wish: Wish,
    question: str,
    spent: int = 0,
) -> OrderRecord:
    """An order that is written down and not sent yet; raises TabShort or NoTab, and then nothing was given out."""
    assert session.language is not None
    require_room(prompt, wish, session.language.context)
    request = request_of(offer, prompt, session.language.end_tokens, wish)
    salt = Hash32(secrets.token_bytes(32))
    most = most_of(offer, wish, len(prompt), spent=spent)
    record = session.books.record(tab_context.identifier)
    key = session.keyring.key(record.tab.key)
    hashed = request_hash(request, salt)
    logprobs = None if wish.choices.logprobs == NO_LOGPROBS else wish.choices.logprobs
    terms = replace(offer.terms(offer.reference_block(session.block)), tab=tab_context.identifier)
    view = session.view(terms, record.tab)

    def make(number: int, voucher: Signed[Voucher]) -> Hash32:
        made = lottery.secrets_for(master_of(key), tab_context.identifier, number, hashed)
        order = replace(
            terms,
            sequence=number,
            request_hash=hashed,
            max_fee=most,
            check_rate=check_rate_of(offer, wish),
            deadline=int(time.time()) + LIFETIME_SECONDS,
            draw_hash=made.draw_hash,
            tiles_hash=made.tiles_hash,
            reply_key=Hash32(public_key(reply_secret(key, hashed))),
        )
        signed = sign(order, session.domain, key.secret)
        # What this client would not take from another, it does not send.
        life.validate_order(signed, view)
        identifier = messages.order_id(order, session.domain)
        submission = Submission(signed, record.tab, voucher, canonical_bytes(request), salt, logprobs)
        session.journal.ordered(identifier, submission, question=question, mode=wish.check.mode)
        return identifier

    state = session.state.tab_state(tab_context.identifier)
    return session.journal.entry(session.books.order(tab_context.identifier, most, state, key, make))


def secrets_of(session: PayerSession, order: Order, key_secret: bytes) -> lottery.Secrets:
    """Both secrets of an order of this client, derived again."""
    return lottery.secrets_for(key_secret, order.tab, order.sequence, order.request_hash)
