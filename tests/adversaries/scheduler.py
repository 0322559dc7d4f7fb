"""The process of a scheduler: `python -m adversaries.scheduler --plan FILE`.

It is the shipped scheduler; in the orders that its notes are about, one step is another: who it says was drawn, what it
hands to verifiers, whether it answers, what it pays.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adversaries.notes import SCHEDULER, Notes
from adversaries.plan import CONTEXT, POLL_SECONDS, VRF_SECRET, Plan, key_of
from adversaries.rules import set_rule
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import messages
from troth.protocol.market.parts import MarketPlace
from troth.protocol.types import Address, Hash32
from troth.scheduler.assembly import SchedulerKeys, assembled_market
from troth.scheduler.checks import running as checking
from troth.scheduler.checks import seat as seats
from troth.scheduler.checks.summons import SummonsDuty
from troth.scheduler.configuration import SchedulerConfiguration
from troth.scheduler.duties import DutyPace
from troth.scheduler.errors import Busy, TaskFailed
from troth.scheduler.log.entries import LogBook
from troth.scheduler.nodes.patience import GenerationPatience
from troth.scheduler.orders import admission, concluding
from troth.scheduler.orders.context import Waits
from troth.scheduler.orders.offers import PriceList
from troth.scheduler.orders.service import Orders
from troth.scheduler.served import ModelTexts, ServedClass
from troth.scheduler.tabs.node_tabs import NodeTabs
from troth.scheduler.tabs.opening import Deposits
from troth.transport.identity import load_identity
from troth.transport.logs import configure
from troth.transport.server import TlsServer, run_until_stopped

LISTED = PriceList(prompt=8 * 10**17, cached=8 * 10**16, written=16 * 10**17)
"""Wei for 10^9 positions, as in the demo."""
CheatOf = Callable[[bytes], str | None]
Rows = list[bytes]
_earlier: dict[str, Rows] = {}


def altered(rows: Rows) -> Rows:
    """One bit of one state."""
    return [*rows[:2], bytes([rows[2][0] ^ 1]) + rows[2][1:], *rows[3:]]


def dropped(rows: Rows) -> Rows:
    """One row is left out, and the last one stands twice."""
    return [*rows[:2], *rows[3:], rows[-1]]


def reordered(rows: Rows) -> Rows:
    """Two rows in each other's place."""
    return [*rows[:2], rows[3], rows[2], *rows[4:]]


def replayed(rows: Rows) -> Rows:
    """The rows of an order that was checked before, as many as there are here."""
    return (_earlier["rows"] * len(rows))[: len(rows)]


TAMPERED: dict[str, Callable[[Rows], Rows]] = {
    "altered rows": altered,
    "dropped rows": dropped,
    "reordered rows": reordered,
    "replayed rows": replayed,
}


class TamperedRows:
    """Kept rows as verifiers are shown them."""

    def __init__(self, kept: Any, total: int, change: Callable[[Rows], Rows]) -> None:
        self._kept, self._total, self._change = kept, total, change

    def rows(self, segment: int, start: int, count: int) -> bytes:
        """All rows, changed, and of these the wanted ones."""
        data, size = self._kept.rows(segment, 0, self._total), self._kept.row_bytes
        split = [data[at : at + size] for at in range(0, len(data), size)]
        return b"".join(self._change(split)[start : start + count])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


def break_rules(cheat_of: CheatOf) -> None:
    """Replace rules of this process by ones that ask the notes first."""
    _name_others(cheat_of)
    _tamper(cheat_of)
    _withhold(cheat_of)
    _pay_less(cheat_of)
    _log_otherwise(cheat_of)


def _name_others(cheat_of: CheatOf) -> None:
    honest_draw, honest_choose, honest_verifiers = admission._draw, admission._choose, checking.drawn_verifiers

    def draw(asked: Any) -> Any:
        drawn = honest_draw(asked)
        if cheat_of(asked.order_id) != "wrong VRF key":
            return drawn
        return replace(drawn, proof=vrf.prove(keccak256(b"another key"), messages.infer_alpha(asked.order_id)))

    def choose(asked: Any, drawn: Any, preferred: Any) -> tuple[Address, ...]:
        nodes: tuple[Address, ...] = honest_choose(asked, drawn, preferred)
        if cheat_of(asked.order_id) != "wrong assignment":
            return nodes
        members = asked.view.groups[0].members_at(asked.order.reference_block)
        friend = next(one.operator for one in members if one.operator not in drawn.candidates[0])
        return (friend, *nodes[1:])

    def verifiers(context: Any, history: Any) -> Any:
        """Friends in place of those who were drawn."""
        drawn = honest_verifiers(context, history)
        if cheat_of(history.order_id) != "friends check":
            return drawn
        others = [node for node in _members(context, history) if node not in drawn[0].seats]
        friends = tuple(others[: len(drawn[0].operators)])
        return (replace(drawn[0], operators=friends), *drawn[1:])

    set_rule(admission, "_draw", draw)
    set_rule(admission, "_choose", choose)
    set_rule(checking, "drawn_verifiers", verifiers)


def _members(context: Any, history: Any) -> list[Address]:
    view = context.view(history.order, history.admitted.tab)
    return [one.operator for one in view.groups[0].members_at(history.order.reference_block)]


def _tamper(cheat_of: CheatOf) -> None:
    honest_judge, honest_commit, honest_answer = (
        seats.DrawnVerifier.judge,
        seats.DrawnVerifier.commit,
        seats.DrawnVerifier._answer,
    )

    async def judge(self: Any, commitment: Any) -> Any:
        cheat, kept, total = cheat_of(self._session.order_id), self._kept, self._rows
        data, size = kept.rows(self._segment, 0, total), kept.row_bytes
        split = [data[at : at + size] for at in range(0, len(data), size)]
        if cheat is None:
            _earlier.setdefault("rows", split)
        if cheat == "withheld target":
            raise TaskFailed("nothing is shown", self._segment)
        if cheat in TAMPERED:
            self._kept = TamperedRows(kept, total, TAMPERED[cheat])
        try:
            return await honest_judge(self, commitment)
        finally:
            self._kept = kept

    def answer(self: Any) -> Any:
        tokens = honest_answer(self)
        if cheat_of(self._session.order_id) != "other text":
            return tokens
        return [*tokens[:-1], (tokens[-1] + 1) % 32]

    async def commit(self: Any) -> Any:
        if cheat_of(self._session.order_id) == "shows nothing to verifiers":
            raise TaskFailed("verifiers are asked nothing", self._segment)
        return await honest_commit(self)

    set_rule(seats.DrawnVerifier, "judge", judge)
    set_rule(seats.DrawnVerifier, "commit", commit)
    set_rule(seats.DrawnVerifier, "_answer", answer)


def _withhold(cheat_of: CheatOf) -> None:
    honest_results, honest_secret = concluding.OrderEnding.results, Orders.show_secret
    honest_summons = SummonsDuty._answer

    async def results(self: Any, timeout: float) -> Any:
        found = await honest_results(self, timeout)
        if cheat_of(self.session.order_id) == "withholds results":
            await asyncio.Event().wait()
        return found

    async def show_secret(self: Any, order_id: Hash32, secret: Hash32) -> Any:
        cheat, history = cheat_of(order_id), self.context.store.get(order_id)
        waits = cheat == "checks late" and history is not None and history.revealed is None
        if waits or cheat == "refuses the check":
            raise Busy("Not now", 60)
        return await honest_secret(self, order_id, secret)

    async def answer(self: Any, asked: Any) -> None:
        if cheat_of(asked.history.order_id) not in {"refuses the check", "friends check"}:
            await honest_summons(self, asked)

    set_rule(concluding.OrderEnding, "results", results)
    set_rule(Orders, "show_secret", show_secret)
    set_rule(SummonsDuty, "_answer", answer)


def _pay_less(cheat_of: CheatOf) -> None:
    honest = NodeTabs.set_fee

    def set_fee(self: Any, node: Address, number: int, fee: int, due: int) -> Any:
        owed = self.held(node).owed.get(number)
        if owed is not None and cheat_of(owed.order) == "pays no node":
            return []
        short = owed is not None and cheat_of(owed.order) == "pays a node less"
        return honest(self, node, number, fee // 2 if short else fee, due)

    set_rule(NodeTabs, "set_fee", set_fee)


def _log_otherwise(cheat_of: CheatOf) -> None:
    honest_assign, honest_data = LogBook.assign, LogBook.data

    def assign(self: Any, history: Any) -> Any:
        number, statements = honest_assign(self, history)
        left_out = cheat_of(history.order_id) == "leaves it out of its log"
        return number, [one for one in statements if not (left_out and "INTO log_line" in one[0])]

    def data(self: Any, number: int) -> bytes | None:
        served = honest_data(self, number)
        query = "SELECT order_id FROM log_line WHERE entry = ?"
        cheats = {cheat_of(order) for (order,) in self._database.read(query, number)}
        if served is None or "serves another log" not in cheats:
            return served
        return served.replace(b'"node_share":8000', b'"node_share":8001')

    set_rule(LogBook, "assign", assign)
    set_rule(LogBook, "data", data)


def configuration_of(plan: Plan) -> SchedulerConfiguration:
    """As `troth scheduler init` writes it."""
    folder, port = plan.home("scheduler"), plan.ports[-1]
    model = Path(plan.model) if plan.model else plan.home("toy")
    return SchedulerConfiguration(
        folder=folder,
        rpc=plan.rpc,
        chain_id=31337,
        poll_seconds=POLL_SECONDS,
        market=MarketPlace(*plan.addresses),
        operator_keystore=folder / "unused.json",
        vrf_keystore=folder / "unused.json",
        host="127.0.0.1",
        port=port,
        endpoint=f"https://127.0.0.1:{port}",
        served=(ServedClass(plan.execution_class, plan.ends, ModelTexts.load(model), CONTEXT),),
        prices={plan.execution_class: LISTED},
        deposits=Deposits(10**16, 10**13),
        redeem_times=0 if plan.collects else 10**9,
        concurrent=16,
        log_seconds=plan.log_seconds,
        waits=Waits(GenerationPatience(token=30.0, prefill=60.0), check=30.0),
    )


async def serve(plan: Plan) -> None:
    """Serve until SIGTERM."""
    notes, configuration = Notes(plan.notes), configuration_of(plan)
    break_rules(lambda order: notes.cheat(order, SCHEDULER))
    keys = SchedulerKeys(key_of("scheduler"), VRF_SECRET)
    identity = load_identity(configuration.folder / "tls")
    async with assembled_market(configuration, keys, DutyPace(urgent=0.2, money=1.0, slow=5.0)) as scheduler:
        server = TlsServer(scheduler.app(), identity, configuration.host, configuration.port)
        await run_until_stopped(server, lambda _port: plan.ready("scheduler").touch())


def main() -> None:
    """Parse and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True)
    arguments = parser.parse_args()
    configure("INFO")
    asyncio.run(serve(Plan.read(arguments.plan)))


if __name__ == "__main__":
    main()
