"""What became of earlier questions: the journal, brought up to date with the chain."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from troth.client.chain_view import view
from troth.client.configuration import Configuration
from troth.client.home import Home
from troth.client.money import format_amount
from troth.client.receipts import Receipt, Receipts, opened
from troth.client.standing import movements_of, standing
from troth.protocol.state import State


async def print_receipts(home: Home, configuration: Configuration, task: str, *, as_json: bool) -> None:
    """Print one receipt whole, or a line for each."""
    async with view(home, configuration) as (chain, follower):
        with opened(home.receipts, chain.domain) as receipts:
            chosen = [receipts.find(task)] if task else receipts.all()
            shown = [describe(receipts, one, follower.state) for one in chosen]
    if as_json:
        print(json.dumps(shown[0] if task else shown))
        return
    if not shown:
        print("nothing was asked yet", file=sys.stderr)
    for one in shown:
        print(_whole(one) if task else _line(one))


def describe(receipts: Receipts, receipt: Receipt, state: State) -> dict[str, Any]:
    """A receipt as `--json` prints it, from the journal and from what the chain says now, which is noted."""
    record = state.tasks.get(receipt.task_id)
    now = standing(record, receipt.deadline, time.time())
    if record is not None:
        receipts.followed(receipt.task_id, record)
        receipt = receipts.find(receipt.name)
    return {
        "task_id": receipt.name,
        "created": receipt.created,
        "state": now.word,
        "outcome": receipt.outcome,
        "fee_wei": str(receipt.fee),
        "cost_wei": str(now.cost),
        "locked_wei": str(now.locked),
        "scheduler": receipt.scheduler,
        "execution_class": "0x" + receipt.execution_class.hex(),
        "prompt_tokens": receipt.prompt_tokens,
        "tokens": len(receipt.tokens),
        "transactions": receipt.transactions,
        "movements": [] if record is None else movements_of(record),
        "failure": receipt.failure,
    }


def _line(shown: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(shown["created"]))
    money = f"{format_amount(int(shown['locked_wei']))} locked" if int(shown["locked_wei"]) else _cost(shown)
    failure = f"  {shown['failure']}" if shown["failure"] else ""
    return f"{shown['task_id']}  {when}  {shown['state']:<13} {money}{failure}"


def _whole(shown: dict[str, Any]) -> str:
    lines = [
        f"task        {shown['task_id']}",
        f"state       {shown['state']}",
        f"cost        {_cost(shown)} of {format_amount(int(shown['fee_wei']))}",
        f"scheduler   {shown['scheduler']}",
        f"tokens      {shown['prompt_tokens']} in, {shown['tokens']} out",
    ]
    if shown["failure"]:
        lines.append(f"failure     {shown['failure']}")
    lines += [f"{step:<11} {transaction}" for step, transaction in shown["transactions"].items()]
    for one in shown["movements"]:
        reason = f" ({one['reason']})" if "reason" in one else ""
        lines.append(f"{one['kind']:<11} {one['account']} {format_amount(int(one['wei']))}{reason}")
    return "\n".join(lines)


def _cost(shown: dict[str, Any]) -> str:
    return format_amount(int(shown["cost_wei"]))


