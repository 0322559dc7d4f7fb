"""Taking an order: the checks in their order, each refusal with what would help, and then the draw.

Nothing is charged and nothing is written before every check has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from troth.protocol import typed_data, vrf
from troth.protocol.assignment import Assignment, Members, assignment_alpha, draw
from troth.protocol.types import pack_ends
from troth.protocol.errors import InvalidRequest, InvalidSignature, WrongAssignment
from troth.protocol.identifiers import group_id, task_id
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.request import Request, request_hash
from troth.protocol.state import State
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32, Order, Segment
from troth.scheduler.admitted import AdmittedTask
from troth.scheduler.catalogue import Catalogue, Terms
from troth.scheduler.errors import (
    AlreadyOrdered,
    BadRequest,
    BadSignature,
    Expired,
    GroupTooSmall,
    OtherSplit,
    PromptTooLong,
    TokenOutOfVocabulary,
)
from troth.scheduler.task_errors import EmptyPrompt, FeeTooLow, InsufficientEscrow, WrongReferenceBlock

REFERENCE_AGE = 200
"""Blocks that an order's reference may lie back: the contract refuses older ones."""
REFERENCE_MARGIN = 10
"""Blocks left for the opening transaction to be mined while the reference is still young enough."""


@dataclass(frozen=True, slots=True)
class SubmittedRequest:
    """The request as it was sent, before anything of it is believed."""

    prompt_tokens: tuple[int, ...]
    max_tokens: int
    temperature_millionths: int
    top_p_millionths: int
    end_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SubmittedOrder:
    """An order with its signature, the request it stands for, the salt, and how many alternatives to each token the
    client would like to see with their log probabilities (NO_LOGPROBS for none of it)."""

    order: Order
    signature: bytes
    request: SubmittedRequest
    salt: Hash32
    logprobs: int = NO_LOGPROBS


@dataclass(frozen=True, slots=True)
class View:
    """What the checks look at besides the order.

    Args:
        reserved: wei of a client's escrow that tasks of this scheduler will lock and have not yet.
        known: whether a task was taken here before.
    """

    state: State
    block: int
    reserved: Callable[[Address], int]
    known: Callable[[Hash32], bool]


class Admission:
    """Checks orders for one scheduler and draws their parties."""

    def __init__(
        self,
        catalogue: Catalogue,
        scheduler: Address,
        vrf_secret: bytes,
        domain: Domain,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue = catalogue
        self._scheduler = scheduler
        self._vrf_secret = vrf_secret
        self._domain = domain
        self._clock = clock

    def admit(self, submitted: SubmittedOrder, view: View) -> AdmittedTask:
        """The task, drawn; raises one of OrderRefused's kinds."""
        order = submitted.order
        terms = self._catalogue.terms(order.execution_class, view.state)
        self._check_deadline(order)
        self._check_reference(order, view.block)
        self._check_split(order, terms)
        client = self._client(submitted)
        self._check_fee(order, terms)
        self._check_escrow(client, terms, view)
        task = task_id(order, self._domain)
        self._check_new(task, view)
        request = self._request(submitted, terms)
        assignment, alphas = self._draw(order, task, client, terms, view.state)
        return AdmittedTask(
            order=order,
            signature=submitted.signature,
            fee=terms.fee,
            request=request,
            salt=submitted.salt,
            execution_class=terms.execution_class,
            model=terms.model,
            assignment=assignment,
            alphas=alphas,
            logprobs=submitted.logprobs,
        )

    def _check_deadline(self, order: Order) -> None:
        late = int(self._clock()) - order.deadline
        if late > 0:
            raise Expired(
                f"The order expired {late} s ago by this scheduler's clock",
                order.deadline,
                "Order again; if the deadline should lie ahead, set the clock of the machine that signed.",
            )

    def _check_reference(self, order: Order, block: int) -> None:
        oldest = block - REFERENCE_AGE + REFERENCE_MARGIN
        if not oldest <= order.reference_block <= block:
            raise WrongReferenceBlock(
                f"The reference block must lie between {max(0, oldest)} and {block}, the newest that was seen here",
                order.reference_block,
                "Order again with a block of the last few minutes; if yours is newer, try again in a moment.",
            )

    def _check_split(self, order: Order, terms: Terms) -> None:
        if order.ends != pack_ends(terms.ends):
            raise OtherSplit(terms.ends, order.ends.hex())

    def _client(self, submitted: SubmittedOrder) -> Address:
        if submitted.order.scheduler != self._scheduler:
            raise BadSignature(
                f"The order is for another scheduler, this is {self._scheduler}",
                submitted.order.scheduler,
                "Order here.",
            )
        try:
            return typed_data.recover(submitted.order, self._domain, submitted.signature)
        except InvalidSignature as error:
            raise BadSignature(error.what, error.value, error.remedy) from error

    def _check_fee(self, order: Order, terms: Terms) -> None:
        if order.max_fee < terms.fee:
            raise FeeTooLow(
                f"The task costs {terms.fee} wei",
                f"max_fee is {order.max_fee}",
                f"Sign an order with max_fee {terms.fee}.",
            )

    def _check_escrow(self, client: Address, terms: Terms, view: View) -> None:
        free = view.state.escrow_of(client) - view.reserved(client)
        shortfall = terms.fee - free
        if shortfall > 0:
            raise InsufficientEscrow(
                f"{client} has {max(0, free)} wei of free escrow, the task costs {terms.fee}: {shortfall} are missing",
                shortfall,
                f"Top up: troth client deposit {shortfall}wei --broadcast",
            )

    def _check_new(self, task: Hash32, view: View) -> None:
        if view.known(task) or view.state.tasks.get(task) is not None:
            raise AlreadyOrdered(
                "This order was taken before",
                "0x" + task.hex(),
                "GET /v1/tasks/{id} has its receipt; for more, sign a new nonce.",
            )

    def _request(self, submitted: SubmittedOrder, terms: Terms) -> Request:
        sent = submitted.request
        _check_prompt(sent, terms)
        try:
            request = Request(
                submitted.order.execution_class,
                sent.prompt_tokens,
                sent.max_tokens,
                sent.temperature_millionths,
                sent.top_p_millionths,
                sent.end_tokens,
            )
        except InvalidRequest as error:
            raise BadRequest(error.what, error.value, error.remedy) from error
        actual = request_hash(request, submitted.salt)
        if actual != submitted.order.request_hash:
            raise BadRequest(
                "The order was signed for another request",
                "0x" + actual.hex(),
                "Hash the canonical request with the salt sent.",
            )
        return request

    def _draw(
        self, order: Order, task: Hash32, client: Address, terms: Terms, state: State
    ) -> tuple[Assignment, tuple[Hash32, ...]]:
        alphas, betas, proofs, parties = [], [], [], []
        for index, segment in enumerate(terms.segments):
            members = _members(order, segment, state)
            _check_group(members, segment, order, terms)
            alpha = assignment_alpha(
                self._domain, task, index, group_size=len(members), reference_block=order.reference_block
            )
            proof = vrf.prove(self._vrf_secret, alpha)
            beta = Hash32(vrf.proof_to_hash(proof))
            alphas.append(alpha)
            betas.append(beta)
            proofs.append(proof)
            parties.append(_drawn(beta, members, terms))
        assignment = Assignment(
            task_id=task,
            client=client,
            segments=terms.segments,
            parties=tuple(parties),
            betas=tuple(betas),
            proofs=tuple(proofs),
            candidate_count=terms.execution_class.candidates,
        )
        return assignment, tuple(alphas)


def _check_prompt(sent: SubmittedRequest, terms: Terms) -> None:
    if not sent.prompt_tokens:
        raise EmptyPrompt("The prompt has no tokens", remedy="Send at least one token.")
    needed, context = len(sent.prompt_tokens) + sent.max_tokens, terms.served.context
    if needed > context:
        raise PromptTooLong(
            f"Prompt ({len(sent.prompt_tokens)}) and max_tokens ({sent.max_tokens}) need {needed} positions, "
            f"the context has {context}",
            remedy=f"Shorten them by {needed - context} tokens.",
        )
    outside = [token for token in (*sent.prompt_tokens, *sent.end_tokens) if not 0 <= token < terms.model.vocabulary]
    if outside:
        raise TokenOutOfVocabulary(
            f"The vocabulary has {terms.model.vocabulary} tokens",
            outside[0],
            "Use the tokenizer that this scheduler offers.",
        )


def _members(order: Order, segment: Segment, state: State) -> Members:
    group = state.groups.get(group_id(order.execution_class, segment))
    return [] if group is None else group.members_at(order.reference_block)


def _check_group(members: Members, segment: Segment, order: Order, terms: Terms) -> None:
    there = sum(member is not None for member in members)
    needed = terms.execution_class.parties
    if there < needed:
        raise GroupTooSmall(
            f"Segment [{segment.first}, {segment.end}) had {there} nodes at block {order.reference_block}, "
            f"the class needs {needed}",
            remedy="Nothing was charged. Try again when more nodes have registered.",
        )


def _drawn(beta: Hash32, members: Members, terms: Terms) -> tuple[Address, ...]:
    try:
        return draw(beta, members, terms.execution_class.parties)
    except WrongAssignment as error:
        raise GroupTooSmall(error.what, error.value, error.remedy) from error
