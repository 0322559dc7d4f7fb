"""Rows with a course of their own: what a client sends by hand, and what holders of two words do with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from adversaries.money import rows_of
from adversaries.registry import CONVICTED, SCHEDULER_CONVICTED
from adversaries.steps import (
    convict,
    evidence_of,
    finish,
    paid_word,
    refused_order,
    refused_word,
    send,
    show,
    tab_secret,
    undrawn,
)
from adversaries.trial import Trial
from troth.client.orders.updates import ServedUpdate
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Submission
from troth.protocol.market.messages import Signed, market_domain, sign
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Result
from troth.protocol.market.types import Tab
from troth.protocol.types import Address, address_from_bytes, address_to_bytes


async def two_results(trial: Trial) -> None:
    """Whoever holds both of a node's results convicts it, in one transaction."""
    await trial.ask()
    shared = trial.network.notes.shared(trial.order)
    assert shared is not None, "the node signed one result"
    other = canonical.decode(Signed[Result], shared, len(shared))
    await convict(trial, replace(evidence_of(trial), other_results=(other,)))
    assert trial.convicted(trial.nodes[0], Fault.TWO_RESULTS)
    trial.note_end(CONVICTED)


async def wrong_nodes(trial: Trial) -> None:
    """The client refuses the admission, and what the scheduler signed convicts it."""
    await trial.ask()
    await convict(trial, evidence_of(trial))
    assert trial.convicted(trial.network.scheduler, Fault.WRONG_NODES)
    trial.note_end(SCHEDULER_CONVICTED)


async def pays_less(trial: Trial) -> None:
    """The node refuses the voucher, and keeps what it needs to claim the whole promise."""
    before = {node.address: _refusals(trial, node.address) for node in trial.network.stage.nodes}
    await trial.ask()
    inferencer = trial.nodes[0]
    await trial.until(lambda: _refusals(trial, inferencer) > before[inferencer], "the node's refusal")
    owed, held = _promised(trial), _acknowledged(trial)
    assert owed > 0, "nothing was promised"
    trial.note_end("claimable" if held == 0 else f"paid {held} of {owed}")


def _refusals(trial: Trial, node: Address) -> int:
    """How many vouchers a node has refused."""
    return len(trial.network.notes.seen(address_to_bytes(node)))


async def never_shown(trial: Trial) -> None:
    """The leaf stays undrawn and is owed as any other: nobody gains."""
    await undrawn(trial)
    trial.note_end("undrawn")


async def shown_first(trial: Trial) -> None:
    """A secret that is shown before the draw says nothing: the scheduler takes none."""
    refused = ""
    async with aclosing(send(trial, tokens=48)) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                refused = await show(trial)
    await finish(trial)
    trial.found.said = refused
    trial.note_end("refused" if "not drawn yet" in refused else f"taken: {refused}")


async def other_payee(trial: Trial) -> None:
    """An order on a tab with somebody else is none for this scheduler."""
    await refused_order(trial, lambda sent: replace(sent, tab=_elsewhere(sent.tab)))


async def another_bank(trial: Trial) -> None:
    """A word in another deployment's domain is nobody's word here."""
    domain = market_domain(31337, address_from_bytes(b"\x77" * 20))

    def change(sent: Submission) -> Submission:
        return replace(sent, voucher=sign(sent.voucher.message, domain, tab_secret(trial)))

    await refused_order(trial, change)


async def backwards(trial: Trial) -> None:
    """A word that says less than the one before is refused."""
    best = await paid_word(trial)
    assert best.spent > 0
    less = replace(best, spent=best.spent - 1, sequence=best.sequence + 1)
    await refused_word(trial, less)


async def unacknowledged_again(trial: Trial) -> None:
    """A number that was paid for is not open again."""
    best = await paid_word(trial)
    await refused_word(trial, replace(best, acknowledged_through=best.acknowledged_through - 1))


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        two_results,
        wrong_nodes,
        pays_less,
        never_shown,
        shown_first,
        other_payee,
        another_bank,
        backwards,
        unacknowledged_again,
    )
}


# ------------------------------------------------------------------------------------------------ what they share


def _promised(trial: Trial) -> int:
    return sum(worth for worth, _ in _leaves(trial))


def _acknowledged(trial: Trial) -> int:
    return sum(worth for worth, acknowledged in _leaves(trial) if acknowledged)


def _leaves(trial: Trial) -> list[tuple[int, bool]]:
    """What the order's node counts for its inference, and whether a voucher pays it."""
    name = trial.accountant.names[trial.nodes[0]]
    path = trial.network.plan.home(name) / "market.sqlite"
    rows = rows_of(path, "SELECT order_id, worth, acknowledged, work FROM leaves WHERE stage = 1")
    return [(int(worth), bool(paid)) for order, worth, paid, work in rows if order == trial.order and int(work) == 0]


def _elsewhere(tab: Tab) -> Tab:
    return replace(tab, payee=address_from_bytes(b"\x55" * 20))
