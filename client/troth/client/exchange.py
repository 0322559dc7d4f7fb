"""The lines of one order's stream, each checked against the chain and against the lines before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from troth.chain.errors import ChainError, FollowTimeout
from troth.client.checking import (
    check_assignment,
    check_commitment,
    check_output_hash,
    check_served,
    check_terms,
)
from troth.client.chosen import Chosen, read_chosen
from troth.client.detokenizer import Detokenizer
from troth.client.errors import ProofError, SchedulerRefused, StreamError
from troth.client.money import format_amount
from troth.client.ordering import SignedOrder
from troth.client.session import Session
from troth.client.standing import Standing, standing_of
from troth.client.untrusted import read_hex, read_text, read_whole
from troth.client.updates import Finished, Text, Verdict
from troth.protocol.assignment import Assignment
from troth.protocol.logprobs import NO_LOGPROBS
from troth.protocol.types import Address, Hash32

__all__ = ["Assigned", "Chosen", "Exchange", "Finished", "Posted", "Text", "Update", "Verdict"]

FOLLOW_SECONDS = 60.0
"""How far the client's chain node may lag behind the scheduler's."""
OTHER_LINES = 64
"""Lines besides tokens; a task has seven."""
LARGEST_GAS = 2**63


@dataclass(frozen=True, slots=True)
class Assigned:
    """The parties, drawn and proven; the client checked the proof."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Posted:
    """A transaction of this task was mined: its step, hash and, by the scheduler's word, its gas."""

    step: str
    transaction: str
    gas: int


Update = Assigned | Text | Finished | Posted | Verdict


class Exchange:
    """What has arrived for one order; `outcome` is the chain's, None until it has decided."""

    def __init__(self, session: Session, signed: SignedOrder) -> None:
        self._session = session
        self._signed = signed
        self._detokenizer = Detokenizer(session.language)
        self._lines = 0
        self._assignment: Assignment | None = None
        self._served_by: Address | None = None
        self._transactions: dict[str, str] = {}
        self._unshown: list[Chosen] = []
        self.tokens: list[int] = []
        self.finished: str | None = None
        self.outcome: str | None = None

    @property
    def name(self) -> str:
        """The task's id as text."""
        return "0x" + self._signed.task_id.hex()

    async def read(self, line: dict[str, Any]) -> list[Update]:
        """The updates that a line brings; ProofError, SchedulerRefused or StreamError if it is not to be believed."""
        self._lines += 1
        if self._lines > self._signed.request.max_tokens + OTHER_LINES:
            raise StreamError("The scheduler's stream does not end", f"{self._lines} lines", "Use another scheduler.")
        match line.get("type"):
            case "assigned":
                return [self._read_assignment(line)]
            case "token":
                return self._read_token(line)
            case "served":
                return self._read_served(line)
            case "finished":
                return self._read_finish(line)
            case "opened" | "committed" | "settled" as step:
                return await self._read_step(str(step), line)
            case "failed":
                raise await self._failure(line)
            case _:
                return []

    def _read_assignment(self, line: dict[str, Any]) -> Assigned:
        if self._assignment is not None:
            raise ProofError("The scheduler assigned the task twice", self.name, "Use another scheduler.")
        session = self._session
        drawn = check_assignment(line, self._signed, session.offer, session.chain.domain, session.follower.state)
        self._assignment = drawn
        return Assigned(drawn)

    def _read_token(self, line: dict[str, Any]) -> list[Update]:
        if self._assignment is None:
            raise ProofError(
                "The scheduler sent tokens before it proved who serves", self.name, "Use another scheduler."
            )
        if self.finished is not None or len(self.tokens) >= self._signed.request.max_tokens:
            raise StreamError("The scheduler sent a token after the last one", len(self.tokens), "See the receipt.")
        if self._served_by is not None:
            raise ProofError(
                "The answer goes on after a node has signed it as whole", self._served_by, "Use another scheduler."
            )
        token = read_whole(line.get("id"), 0, self._session.offer.model.vocabulary - 1)
        position = read_whole(line.get("position"), 0, 2**32)
        if position != len(self.tokens):
            what = "A token came twice" if position < len(self.tokens) else "A token is missing"
            raise StreamError(f"{what} in the scheduler's stream", f"position {position}", "See the receipt.")
        chosen = read_chosen(line, token, self._signed.logprobs, self._session.offer.model.vocabulary)
        self.tokens.append(token)
        self._unshown.append(chosen)
        text = self._detokenizer.feed(token)
        return [self._piece(text)] if text else []

    def _piece(self, text: str) -> Text:
        chosen, self._unshown = tuple(self._unshown), []
        return Text(text, chosen)

    def _read_served(self, line: dict[str, Any]) -> list[Update]:
        if self._assignment is None or not self.tokens or self.finished is not None or self._served_by is not None:
            what = "A node's word on its answer came twice, or before or after that answer"
            raise StreamError(what, len(self.tokens), "See the receipt.")
        signed, domain = self._signed, self._session.chain.domain
        node, signature = check_served(line, self._assignment, signed.salt, self.tokens, domain)
        self._served_by = node
        self._session.receipts.served(signed.task_id, node, signature)
        return []

    def _read_finish(self, line: dict[str, Any]) -> list[Update]:
        request = self._signed.request
        if self.finished is not None or not self.tokens:
            raise StreamError("The scheduler's answer ends twice or never began", len(self.tokens), "See the receipt.")
        expected = {
            "end": self.tokens[-1] in request.end_tokens,
            "length": len(self.tokens) == request.max_tokens,
        }
        reason = read_text(line.get("reason"))
        if not expected.get(reason, False):
            raise ProofError("The answer does not end where the scheduler says", reason, "Use another scheduler.")
        check_output_hash(line.get("output_hash"), self._signed.salt, self.tokens)
        self._session.receipts.answered(self._signed.task_id, self.tokens)
        self.finished = reason
        rest = self._detokenizer.flush()
        left = bool(self._unshown) and self._signed.logprobs != NO_LOGPROBS
        return [*([self._piece(rest)] if rest or left else []), Finished(reason, len(self.tokens), self._served_by)]

    async def _read_step(self, step: str, line: dict[str, Any]) -> list[Update]:
        transaction = "0x" + read_hex(line.get("tx"), 32).hex()
        gas = read_whole(line.get("gas", 0), 0, LARGEST_GAS)
        if step == "committed":
            self._check_commitment(await self._on_chain("committed", _is_committed))
        self._transactions[step] = transaction
        self._session.receipts.posted(self._signed.task_id, self._transactions)
        posted = Posted(step, transaction, gas)
        return [posted] if step != "settled" else [posted, await self._read_verdict()]

    async def _read_verdict(self) -> Verdict:
        # The scheduler's word is not enough: the outcome is what the client's own view of the chain says.
        standing = await self._on_chain("settled", lambda found: found.outcome is not None)
        assert standing.outcome is not None
        self._session.receipts.decided(self._signed.task_id, standing.outcome, standing.paid)
        if standing.output_hash is not None:
            self._check_commitment(standing)
        elif standing.outcome == "accepted":
            raise ProofError("The chain accepted a task without an answer", self.name, "Check --rpc and --contract.")
        self.outcome = standing.outcome
        return Verdict(standing.outcome, standing.paid)

    def _check_commitment(self, standing: Standing) -> None:
        if self.finished is None:
            raise StreamError(
                "An answer was committed on chain of which the scheduler did not send the end",
                f"{len(self.tokens)} tokens",
                f"`troth client receipts {self.name[:12]} --answer` fetches it again and checks it.",
            )
        signed, session = self._signed, self._session
        check_terms(session.follower.state.tasks[signed.task_id].task, signed, session.offer)
        check_commitment(standing, len(signed.request.prompt_tokens), signed.salt, self.tokens)

    async def _on_chain(self, step: str, condition: Callable[[Standing], bool]) -> Standing:
        task, follower = Hash32(self._signed.task_id), self._session.follower

        def fulfilled(state: Any) -> bool:
            standing = standing_of(state, task)
            return standing is not None and condition(standing)

        try:
            state = await follower.wait_until(fulfilled, FOLLOW_SECONDS)
        except FollowTimeout as error:
            if follower.failure is not None:
                raise
            raise ProofError(
                f"The scheduler says that the task is {step}, and the chain does not",
                f"{self.name}, {error.value}",
                "Check that --rpc is not behind; `troth client receipts` shows how the task ends.",
            ) from error
        standing = standing_of(state, task)
        assert standing is not None
        return standing

    async def _failure(self, line: dict[str, Any]) -> SchedulerRefused:
        said = "You were charged" if line.get("charged") else "You were not charged"
        try:
            state = await self._session.follower.catch_up()
        except ChainError as error:
            money = f"{said}, says the scheduler; the chain cannot be asked now ({error.what})."
        else:
            money = _money(standing_of(state, self._signed.task_id), by_hearsay=self._session.mode == "direct")
        message, code = read_text(line.get("message")), read_text(line.get("code"))
        return SchedulerRefused(f"The request failed: {message}", code, f"{money} Ask again when you like.")


def _is_committed(standing: Standing) -> bool:
    return standing.output_hash is not None or standing.outcome is not None


def _money(standing: Standing | None, *, by_hearsay: bool) -> str:
    """What the chain holds. Of a failure told by a node, not by the scheduler itself, only the chain is proof."""
    if standing is None and by_hearsay:
        return (
            "Nothing is locked on chain so far. Only a node said that the request failed: until the order's deadline "
            "its scheduler could still open it, and `troth client receipts` shows whether it did."
        )
    if standing is None:
        return "Nothing was locked on chain, so you were not charged."
    if standing.outcome is None:
        held = format_amount(standing.held)
        return f"The chain still holds {held} for it; past the deadline `troth client close` gives it back."
    return f"The chain closed the task as {standing.outcome}; you paid {format_amount(standing.paid)}."
