"""Rows with a course of their own: what a client sends by hand, and what holders of two words do with them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

from adversaries.money import rows_of
from adversaries.registry import CONVICTED, SCHEDULER_CONVICTED
from adversaries.rules import set_rule
from adversaries.trial import Trial
from troth.cases.evidence import Evidence
from troth.client.choices import SamplingChoices
from troth.client.errors import ClientError
from troth.client.orders import building
from troth.client.orders.asking import new_question
from troth.client.orders.building import secrets_of
from troth.client.orders.calls import MarketCalls, SchedulerRefusal
from troth.client.orders.case_files import case_file
from troth.client.orders.checking import OrderSettlement
from troth.client.orders.course import Course
from troth.client.orders.court import Court
from troth.client.orders.journal import Phase
from troth.client.orders.paying import give_up
from troth.client.orders.session import TabContext
from troth.client.orders.updates import ServedUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.client.tabs.keys import master_of
from troth.protocol.market import canonical
from troth.protocol.market.bodies import Acknowledgement, Submission
from troth.protocol.market.messages import Signed, market_domain, sign
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Result
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.types import Address, address_from_bytes, address_to_bytes

LATE_BLOCKS = 65
"""More than half of the lag: a secret that comes then is late."""


async def two_results(trial: Trial) -> None:
    """Whoever holds both of a node's results convicts it, in one transaction."""
    await trial.ask()
    shared = trial.network.notes.shared(trial.order)
    assert shared is not None, "the node signed one result"
    other = canonical.decode(Signed[Result], shared, len(shared))
    await _convict(trial, replace(_evidence(trial), other_results=(other,)))
    assert trial.convicted(trial.nodes[0], Fault.TWO_RESULTS)
    trial.note_end(CONVICTED)


async def wrong_nodes(trial: Trial) -> None:
    """The client refuses the admission, and what the scheduler signed convicts it."""
    await trial.ask()
    await _convict(trial, _evidence(trial))
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
    with _secrets_kept():
        async with aclosing(_send(trial)) as steps:
            async for _ in steps:
                continue
        await trial.network.wind(LATE_BLOCKS)
        late = trial.network.follower.block
        await trial.until(lambda: trial.client.session.block >= late, "the client's view of these blocks")
    await trial.until(lambda: trial.entry.phase is Phase.UNDRAWN, "the end of the lottery")
    trial.note_end("undrawn")


@contextmanager
def _secrets_kept() -> Iterator[None]:
    """The client's programs show no secret meanwhile: the part of them that is replaced here."""
    honest, open_again = OrderSettlement.run, asyncio.Event()

    async def run(self: OrderSettlement) -> AsyncGenerator[Any, None]:
        await open_again.wait()
        async with aclosing(honest(self)) as steps:
            async for step in steps:
                yield step

    set_rule(OrderSettlement, "run", run)
    try:
        yield
    finally:
        set_rule(OrderSettlement, "run", honest)
        open_again.set()


async def shown_first(trial: Trial) -> None:
    """A secret that is shown before the draw says nothing: the scheduler takes none."""
    refused = ""
    async with aclosing(_send(trial, tokens=48)) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                refused = await _show(trial)
    await _finish(trial)
    trial.found.said = refused
    trial.note_end("refused" if "not drawn yet" in refused else f"taken: {refused}")


async def other_payee(trial: Trial) -> None:
    """An order on a tab with somebody else is none for this scheduler."""
    await _refused_order(trial, lambda sent: replace(sent, tab=_elsewhere(sent.tab)))


async def another_bank(trial: Trial) -> None:
    """A word in another deployment's domain is nobody's word here."""
    domain = market_domain(31337, address_from_bytes(b"\x77" * 20))

    def change(sent: Submission) -> Submission:
        return replace(sent, voucher=sign(sent.voucher.message, domain, _key(trial)))

    await _refused_order(trial, change)


async def backwards(trial: Trial) -> None:
    """A word that says less than the one before is refused."""
    best = await _paid_word(trial)
    assert best.spent > 0
    less = replace(best, spent=best.spent - 1, sequence=best.sequence + 1)
    await _refused_word(trial, less)


async def unacknowledged_again(trial: Trial) -> None:
    """A number that was paid for is not open again."""
    best = await _paid_word(trial)
    await _refused_word(trial, replace(best, acknowledged_through=best.acknowledged_through - 1))


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


def _evidence(trial: Trial) -> Evidence:
    return case_file(trial.entry, trial.client.session.domain)


async def _convict(trial: Trial, evidence: Evidence) -> None:
    """Whoever holds the evidence acts: here the wallet of the client that goes to court."""
    court = trial.network.clients["suer"].session.opener
    assert isinstance(court, Court)
    await court.office.courtroom.after(trial.network.follower.block - 1, 1.0)
    found = await court.office.opener.assess(evidence)
    assert found.convictions, f"nobody is convicted: {found.words}"
    await court.office.opener.convict(found.convictions[0])
    await trial.network.follower.catch_up()


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


def _best_word(trial: Trial) -> bytes:
    """The word of the client's tab on which its scheduler stands, as it has it on disk."""
    rows = rows_of(trial.network.plan.home("scheduler") / "market.sqlite", "SELECT tab, data FROM client_tab")
    return next(bytes(data) for tab, data in rows if bytes(tab) == trial.client.tab)


def _key(trial: Trial) -> bytes:
    session = trial.client.session
    return session.keyring.key(session.books.record(trial.client.tab).tab.key).secret


def _elsewhere(tab: Tab) -> Tab:
    return replace(tab, payee=address_from_bytes(b"\x55" * 20))


async def _calls(trial: Trial) -> MarketCalls:
    session = trial.client.session
    return await session.calls(session.tab_context_of(trial.client.tab))


async def _placed(trial: Trial, tokens: int | None = None) -> tuple[TabContext, Any]:
    session, row = trial.client.session, trial.row
    tab_context = session.tab_context_of(trial.client.tab)
    offer = await session.open_tab_context(tab_context)
    wish = Wish(SamplingChoices(tokens or row.tokens, 0), CheckWish.read(row.check))
    entry = building.place(session, tab_context, offer, trial.prompt(secrets.randbelow(8)), wish, new_question(), 0)
    trial.network.notes.write(entry.identifier, dict(row.cheats))
    trial.orders.append(entry.identifier)
    return tab_context, entry


async def _send(trial: Trial, tokens: int | None = None) -> AsyncGenerator[Any, None]:
    """An order up to its draw, and nothing more."""
    tab_context, entry = await _placed(trial, tokens)
    course = Course(trial.client.session, tab_context, entry)
    async with aclosing(course.send()) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                trial.nodes = step.nodes
            yield step
    trial.note_answered()


async def _finish(trial: Trial) -> None:
    session = trial.client.session
    async with aclosing(OrderSettlement(session, session.tab_context_of(trial.client.tab), trial.entry).run()) as steps:
        async for _ in steps:
            continue


async def _show(trial: Trial) -> str:
    submission = trial.entry.submission
    assert submission is not None
    secret = secrets_of(trial.client.session, submission.order.message, _master(trial)).draw
    try:
        async with aclosing((await _calls(trial)).show(trial.order, secret)) as lines:
            return json.dumps(await anext(lines, None))
    except (SchedulerRefusal, ClientError) as error:
        return error.what


def _master(trial: Trial) -> bytes:
    """What the secrets of a tab's orders follow from."""
    session = trial.client.session
    return master_of(session.keyring.key(session.books.record(trial.client.tab).tab.key))


async def _refused_order(trial: Trial, change: Callable[[Submission], Submission]) -> None:
    """An order that is sent with a change; the client then gives it up, and nothing is owed."""
    _, entry = await _placed(trial)
    assert entry.submission is not None
    trial.note_answered()
    outcome = "taken"
    try:
        async with aclosing((await _calls(trial)).submit(change(entry.submission))) as lines:
            trial.found.said = json.dumps(await anext(lines, None))
    except SchedulerRefusal as error:
        outcome, trial.found.said = "refused", error.what
    trial.note_end(outcome)
    give_up(trial.client.session, trial.client.session.journal.entry(entry.identifier), "refused: by design")


async def _paid_word(trial: Trial) -> Voucher:
    """The word that pays an answer, once its scheduler stands on it."""
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    await trial.until(trial.word_arrived, "the payment at the scheduler")
    best = trial.client.session.books.record(trial.client.tab).voucher
    assert best is not None, "a tab that paid has a voucher"
    return best.message


async def _refused_word(trial: Trial, word: Voucher) -> None:
    session = trial.client.session
    record = session.books.record(trial.client.tab)
    signed = sign(word, session.domain, _key(trial))
    trial.note_answered()
    try:
        before = _best_word(trial)
        await (await _calls(trial)).acknowledge(Acknowledgement(record.tab, signed))
        trial.note_end("changes nothing" if _best_word(trial) == before else "taken")
    except SchedulerRefusal as error:
        trial.found.said = error.what
        trial.note_end("refused")
