"""What became of earlier questions: the journal, brought up to date with the chain."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from troth.client.answers import fetch_answer, holds_answer
from troth.client.chain_view import view
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.receipts import Receipt, Receipts, opened
from troth.client.standing import Standing, standing_of
from troth.client.terminal import printable, printable_line
from troth.protocol.state import State

CLOCK_TOLERANCE = 60
"""Seconds by which the chain's clock may be behind ours when an order's deadline passes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A receipt, and where the chain says that its task stands."""

    receipt: Receipt
    standing: Standing | None

    @property
    def state(self) -> str:
        """The outcome, "running", or for a task that is not on chain: "not opened", and "lapsed" past its deadline."""
        if self.standing is not None:
            return self.standing.outcome or "running"
        if self.receipt.outcome is not None:
            return self.receipt.outcome
        return "lapsed" if time.time() > self.receipt.deadline + CLOCK_TOLERANCE else "not opened"

    @property
    def paid(self) -> int:
        """Wei that the task has cost."""
        return self.standing.paid if self.standing is not None else self.receipt.paid or 0

    @property
    def held(self) -> int:
        """Wei that are locked for it."""
        return self.standing.held if self.standing is not None else 0

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        receipt = self.receipt
        return {
            "task_id": receipt.task_id,
            "created": receipt.created,
            "state": self.state,
            "outcome": self.standing.outcome if self.standing is not None else receipt.outcome,
            "paid_wei": str(self.paid),
            "held_wei": str(self.held),
            "tokens": len(receipt.tokens),
            "answer_matches_chain": self.answer_matches,
            "transactions": receipt.transactions,
            "served_by": receipt.served_by,
            "failure": receipt.failure,
        }

    @property
    def answer_matches(self) -> bool | None:
        """Whether the stored answer is the committed one; None while none is committed."""
        if self.standing is None or self.standing.output_hash is None:
            return None
        return holds_answer(self.receipt, self.standing)

    def lines(self) -> list[str]:
        """As a person reads it."""
        receipt = self.receipt
        money = f"{format_amount(self.held)} held" if self.held else f"{format_amount(self.paid)} paid"
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(receipt.created))
        lines = [f"{receipt.task_id}  {created}  {self.state:<13} {money}"]
        lines += [f"  {step:<10} {transaction}" for step, transaction in receipt.transactions.items()]
        if receipt.served_by is not None:
            lines.append(f"  {'served by':<10} {receipt.served_by}, which signed the answer")
        if receipt.failure is not None:
            lines.append(f"  {'failure':<10} {printable_line(receipt.failure)}")
        matches = {None: "none is committed", True: "is the committed one", False: "incomplete; --answer fetches it"}
        return [*lines, f"  {'answer':<10} {len(receipt.tokens)} tokens, {matches[self.answer_matches]}"]


async def print_receipts(
    home: Home, configuration: Configuration, task: str, as_json: bool, with_answer: bool = False
) -> None:
    """Print one receipt, or all, brought up to date with the chain; with its answer if that is wanted."""
    answer = await fetch_answer(home, configuration, task) if with_answer else None
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            found = [receipts.find(task)] if task else receipts.all()
            shown = [refreshed(receipts, one, follower.state) for one in found]
    if as_json:
        single = shown[0].to_json() | ({} if answer is None else {"answer": answer}) if task else None
        print(json.dumps([one.to_json() for one in shown] if single is None else single, ensure_ascii=False))
        return
    if not shown:
        print("nothing was asked from here yet", file=sys.stderr)
    for one in shown:
        print("\n".join(one.lines() if task else one.lines()[:1]))
    if answer is not None:
        print(f"\n{printable(answer)}")


def refreshed(receipts: Receipts, receipt: Receipt, state: State) -> Entry:
    """A receipt as the chain has it now; its outcome is written down once it is known."""
    standing = standing_of(state, receipt.identifier)
    if standing is not None and standing.outcome is not None and standing.outcome != receipt.outcome:
        receipts.decided(receipt.identifier, standing.outcome, standing.paid)
    return Entry(receipt, standing)
