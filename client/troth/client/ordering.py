"""Orders: from a conversation's tokens to something signed that a scheduler can serve."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from troth.chain.keystore import Key
from troth.client.choices import Choices
from troth.client.errors import FeeTooHigh, InsufficientBalance, PromptError
from troth.client.market import Offer
from troth.client.money import format_amount
from troth.protocol.types import pack_ends, unpack_ends
from troth.protocol.identifiers import task_id
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.request import Request, request_hash
from troth.protocol.typed_data import Domain, sign
from troth.protocol.types import Hash32, Order

LIFETIME_SECONDS = 600
"""How long a scheduler may take to open an order: clocks differ. Later, nothing can be charged."""


@dataclass(frozen=True, slots=True)
class SignedOrder:
    """An order with all that its scheduler needs, and with what only the client may show: the salt.

    `logprobs` is a hint in no hash and under no signature: it changes nothing that is paid for or verified, and may not
    be served. It is sent only where it asks for something.
    """

    order: Order
    signature: bytes
    request: Request
    salt: Hash32
    task_id: Hash32
    fee: int
    logprobs: int = NO_LOGPROBS

    def to_json(self) -> dict[str, object]:
        """Body of POST /v1/orders."""
        order, request = self.order, self.request
        hint = {} if self.logprobs == NO_LOGPROBS else {"logprobs": self.logprobs}
        return {
            "order": {
                "execution_class": "0x" + order.execution_class.hex(),
                "request_hash": "0x" + order.request_hash.hex(),
                "scheduler": order.scheduler,
                "max_fee": str(order.max_fee),
                "deadline": order.deadline,
                "reference_block": order.reference_block,
                "nonce": order.nonce,
                "ends": list(unpack_ends(order.ends)),
            },
            "signature": "0x" + self.signature.hex(),
            "request": {
                "prompt_tokens": list(request.prompt_tokens),
                "max_tokens": request.max_tokens,
                "temperature_millionths": request.temperature_millionths,
                "top_p_millionths": request.top_p_millionths,
                "end_tokens": list(request.end_tokens),
            },
            "salt": "0x" + self.salt.hex(),
            **hint,
        }


def require_affordable(offer: Offer, balance: int, choices: Choices) -> None:
    """Raise FeeTooHigh above --max-cost, InsufficientBalance below the fee, with the command that tops up."""
    if choices.max_cost is not None and offer.fee > choices.max_cost:
        raise FeeTooHigh(
            f"This request costs {format_amount(offer.fee)}",
            f"--max-cost is {format_amount(choices.max_cost)}",
            "Raise --max-cost, or choose another execution class.",
        )
    shortfall = offer.fee - balance
    if shortfall > 0:
        raise InsufficientBalance(
            f"The request costs {format_amount(offer.fee)}, the balance is {format_amount(balance)}",
            f"{shortfall} wei short",
            f"Top up with `troth client deposit {shortfall}wei --broadcast`.",
            shortfall,
        )


def require_room(prompt_tokens: tuple[int, ...], choices: Choices, context: int) -> None:
    """Raise PromptError where prompt and answer together do not fit the model's context."""
    if not prompt_tokens:
        raise PromptError("The prompt has no tokens", 0, "Write a question.")
    needed = len(prompt_tokens) + choices.max_tokens
    if context and needed > context:
        raise PromptError(
            f"The conversation and --max-tokens need {needed} positions, the model has {context}",
            f"{needed - context} too many",
            "Shorten the question, lower --max-tokens, or start a new conversation.",
        )


def sign_order(  # noqa: PLR0917
    offer: Offer,
    prompt_tokens: tuple[int, ...],
    end_tokens: tuple[int, ...],
    choices: Choices,
    key: Key,
    domain: Domain,
    reference_block: int,
) -> SignedOrder:
    """A fresh order: new salt, new nonce, the class's fee as the most it may cost."""
    request = Request(
        offer.class_id,
        prompt_tokens,
        choices.max_tokens,
        choices.temperature_millionths,
        choices.top_p_millionths,
        tuple(sorted(set(end_tokens))),
    )
    salt = Hash32(secrets.token_bytes(32))
    order = Order(
        execution_class=offer.class_id,
        request_hash=request_hash(request, salt),
        scheduler=offer.scheduler.operator,
        max_fee=offer.fee,
        deadline=int(time.time()) + LIFETIME_SECONDS,
        reference_block=reference_block,
        nonce=secrets.randbits(63),
        ends=pack_ends(offer.ends),
    )
    signature, name = sign(order, domain, key.secret), task_id(order, domain)
    return SignedOrder(order, signature, request, salt, name, offer.fee, choices.logprobs)
