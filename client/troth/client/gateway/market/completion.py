"""A completion whose choices are questions: what it costs is known with its results, by tokens."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from troth.client.gateway.completion import Completion
from troth.client.gateway.errors import AnswerRejected, GatewayRefusal, Money
from troth.client.gateway.ordered import Told
from troth.client.gateway.prices import whole
from troth.client.gateway.shapes import Shapes
from troth.client.orders.own_check import spoken
from troth.client.orders.updates import Ended, Outcome, Recomputed, Sent, Signed
from troth.client.tabs.asset import Asset
from troth.client.updates import Verdict
from troth.protocol.market.types import Opinion
from troth.protocol.types import Hash32

GOOD = {str(Outcome.UNDRAWN), str(Outcome.CHECKED), str(Outcome.UNCLEAR)}
"""Outcomes after which an answer is paid."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One choice: the id of its question, under which all its orders are found, and what it may cost."""

    question: str
    fee: int

    @property
    def task_id(self) -> Hash32:
        """The question's id as bytes."""
        return Hash32(bytes.fromhex(self.question))


def new_question() -> str:
    """An id of 32 bytes that nobody can guess."""
    return secrets.token_hex(32)


@dataclass
class TabCompletion(Completion):
    """What a reader of the answer sees; amounts in the asset's smallest unit."""

    asset: Asset = field(kw_only=True)
    orders: dict[int, str] = field(default_factory=dict)
    signed_results: dict[int, Signed] = field(default_factory=dict)
    ends: dict[int, Ended] = field(default_factory=dict)
    recomputed: dict[int, Recomputed] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The newest order of each choice; the question's id before there is one."""
        return tuple(self.orders.get(number, "0x" + one.task_id.hex()) for number, one in enumerate(self.signed))

    @property
    def cost(self) -> int:
        """By tokens once an answer is signed, before that the most that it may cost; nothing where it is not paid."""
        return sum(self.cost_of(number, one.fee) for number, one in enumerate(self.signed))

    def cost_of(self, number: int, most: int = 0) -> int:
        """That of one choice; ``most`` before its answer is signed."""
        ended, signed = self.ends.get(number), self.signed_results.get(number)
        if ended is not None:
            return ended.fee if str(ended.outcome) in GOOD else 0
        return most if signed is None else signed.fee

    @property
    def cached(self) -> int:
        """Tokens of the prompts that came from a node's cache, and cost less."""
        found = sum(one.cached for one in self.signed_results.values())
        return min(found, self.prompt_tokens * len(self.signed_results))

    @property
    def outcome(self) -> str:
        """ "pending" while an end is missing, else the first one that is not good, else that of the first choice."""
        if len(self.ends) < len(self.signed):
            return "pending"
        said = [str(self.ends[number].outcome) for number in sorted(self.ends)]
        return next((one for one in said if one not in GOOD), said[0])

    @property
    def advice(self) -> list[str]:
        """What the user may do, or what was done."""
        return [one.advice for one in self.ends.values() if one.advice]

    @property
    def own_check(self) -> str | None:
        """What the own model says: its first opinion that is no yes, else yes; None where it was not asked."""
        said = [spoken(self.recomputed[number].opinion) for number in sorted(self.recomputed)]
        return next((one for one in said if one != spoken(Opinion.ACCEPT)), said[0] if said else None)

    def note(self, number: int, update: object) -> Told | None:
        """Take an update of a question; what the reader of the answer is to hear of it."""
        match update:
            case Sent():
                self.orders[number] = "0x" + update.order.hex()
                return None
            case Signed():
                self.signed_results[number] = update
                return None
            case Recomputed():
                self.recomputed[number] = update
                return None
            case Ended():
                self.ends[number] = update
                return Verdict(str(update.outcome), self.cost_of(number))
            case _:
                return None

    def _require_accepted(self) -> None:
        if not self.wanted.wait or self.outcome == "pending":
            return
        doubted = any(one.opinion is Opinion.REJECT for one in self.recomputed.values())
        if self.outcome in GOOD and not doubted:
            return
        raise AnswerRejected(
            "Your own model gives another answer"
            if self.outcome in GOOD
            else "The verifiers did not accept the answer",
            self.outcome,
            "Do not rely on what was sent of it. Once its lag is over it is paid, unless a case stands. Ask again.",
            Money("unknown", self.tasks),
            outcome=self.outcome,
            cost_units=str(self.cost),
            advice=self.advice,
            own_check=self.own_check,
        )


class TabShapes(Shapes):
    """The same objects, with costs in the asset and cached tokens as OpenAI shows them."""

    def __init__(self, completion: TabCompletion, base: str) -> None:
        super().__init__(completion, base)
        self._tabs = completion

    def troth(self) -> dict[str, Any]:
        """Which orders, what they cost, how they are checked, where the receipt is."""
        found = super().troth()
        del found["cost_wei"]
        return found | {
            "cost_units": str(self._tabs.cost),
            "asset": self._tabs.asset.symbol,
            "advice": self._tabs.advice,
            "own_check": self._tabs.own_check,
        }

    def _usage(self) -> dict[str, Any]:
        completion, asset = self._tabs, self._tabs.asset
        usage = super()._usage()
        usage |= {"cost": whole(completion.cost, asset.decimals), "cost_units": str(completion.cost)}
        usage["prompt_tokens_details"] = {"cached_tokens": completion.cached}
        if not asset.is_coin:
            del usage["cost_wei"]
        return usage


__all__ = ["GOOD", "Asked", "GatewayRefusal", "TabCompletion", "TabShapes", "new_question"]
