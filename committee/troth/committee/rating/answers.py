"""An answer to a challenge as one member shows it to the others, and what they check before they believe it.

It is an ordinary order with its admission and its node's result. The tab key signed the order over a salted hash of the
request; the scheduler proved by VRF who was drawn; that node signed a salted hash of the tokens. So whoever shows an
answer can change neither prompt nor tokens nor who wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from troth.client.orders.crediting import NodeAnswer
from troth.client.orders.journal import OrderRecord
from troth.committee.errors import EpochRefused
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical, checks, messages
from troth.protocol.market.bodies import Admitted, Results
from troth.protocol.market.checks import Answer, OrderView
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Tab
from troth.protocol.request import from_canonical_bytes, output_hash, request_hash
from troth.protocol.types import Hash32

LARGEST_ANSWER = 2**18
"""Bytes of one answer; a prompt and an answer of 2,048 tokens each have 40,000."""


@dataclass(frozen=True, slots=True)
class ChallengeAnswer:
    """What became of the prompt at a ``place`` of the epoch's list."""

    place: int
    order: Signed[Order]
    tab: Tab
    request: bytes
    salt: Hash32
    admitted: Admitted
    results: Results
    tokens: tuple[int, ...]


def answer_of(place: int, entry: OrderRecord) -> ChallengeAnswer | None:
    """An order of this member's journal as an answer; None before its results are there."""
    submission, admitted = entry.submission, entry.read("admitted", Admitted)
    results = entry.read("results", Results)
    if submission is None or admitted is None or results is None or len(admitted.nodes) != 1:
        return None
    order, tab, salt = submission.order, submission.tab, submission.salt
    return ChallengeAnswer(place, order, tab, submission.request, salt, admitted, results, entry.tokens)


def encode_answer(answer: ChallengeAnswer) -> bytes:
    """The bytes of an answer."""
    return canonical.encode(answer)


def decode_answer(data: bytes) -> ChallengeAnswer:
    """The answer in these bytes, nothing in it checked; raises EpochRefused."""
    try:
        return canonical.decode(ChallengeAnswer, data, LARGEST_ANSWER)
    except ProtocolError as error:
        raise EpochRefused(f"An answer cannot be read: {error.what}", error.value) from error


@dataclass(frozen=True, slots=True)
class Expected:
    """What an answer must be of: a class, an epoch that began with ``first``, and the prompt's tokens."""

    execution_class: Hash32
    first: int
    prompt: tuple[int, ...]


def checked_answer(
    answer: ChallengeAnswer, expected: Expected, view_of: Callable[[Order, Tab], OrderView]
) -> NodeAnswer:
    """The answer once it is proven; raises EpochRefused with what is wrong.

    (1) The tab's key signed the order, in this class; (2) over this request, whose prompt is the one that was fixed;
    (3) its scheduler admitted it in this epoch, and (4) drew this node, (5) which signed exactly these tokens.
    """
    try:
        return _checked(answer, expected, view_of)
    except ProtocolError as error:
        raise EpochRefused(f"The answer at {answer.place} is not proven: {error.what}", error.value) from error


def _checked(answer: ChallengeAnswer, expected: Expected, view_of: Callable[[Order, Tab], OrderView]) -> NodeAnswer:
    order, request = answer.order.message, from_canonical_bytes(answer.request)
    view = view_of(order, answer.tab)
    identifier = messages.order_id(order, view.domain)
    if order.tab != messages.tab_id(answer.tab) or not view.tab_state.known:
        raise EpochRefused("The order is on no open tab", order.tab, "Show the order as it was sent.")
    if not view.key_check(answer.tab.key, identifier, answer.order.signature):
        raise EpochRefused("The tab key did not sign the order", identifier, "Show the order as it was sent.")
    if order.execution_class != expected.execution_class or request.execution_class != expected.execution_class:
        raise EpochRefused("The order is for another class", order.execution_class, "Rate nodes of one class.")
    if request_hash(request, answer.salt) != order.request_hash or request.prompt_tokens != expected.prompt:
        raise EpochRefused("The order asked something else", answer.place, "Ask the prompts that were fixed.")
    admitted = answer.admitted
    if not expected.first <= admitted.admission.message.block_number:
        raise EpochRefused("The order is of an earlier epoch", admitted.admission.message.block_number, "Ask anew.")
    checks.require_admission(order, admitted.admission, admitted.nodes, admitted.infer_proof, view)
    results = checks.require_results(order, answer.results.results, admitted.nodes, view)
    said = output_hash(answer.salt, answer.tokens)
    checks.require_answer(results, Answer(len(request.prompt_tokens), len(answer.tokens), said))
    proof = admitted.infer_proof
    return NodeAnswer(identifier, order.execution_class, admitted.nodes[0], request, answer.tokens, proof)


def require_distinct(answers: Sequence[ChallengeAnswer], places: range | Sequence[int]) -> None:
    """Raise EpochRefused unless each is of another place of these, and of another order."""
    shown = [answer.place for answer in answers]
    if len(set(shown)) < len(shown) or not set(shown) <= set(places):
        raise EpochRefused("An answer is to no prompt of this leader, or one is there twice", shown, "Show each once.")
    if len({answer.order.signature for answer in answers}) < len(answers):
        raise EpochRefused("One order is shown as two answers", len(answers), "Ask each prompt by itself.")
