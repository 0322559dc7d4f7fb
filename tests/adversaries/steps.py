"""What scripts of rows are made of: orders that are placed or sent by hand, words to a scheduler, and convictions."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from adversaries.money import rows_of
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
from troth.client.orders.journal import OrderRecord, Phase
from troth.client.orders.paying import give_up
from troth.client.orders.session import PayerSession, TabContext
from troth.client.orders.updates import ServedUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.client.tabs.keys import master_of
from troth.protocol.market.bodies import Acknowledgement, Submission
from troth.protocol.market.messages import sign
from troth.protocol.market.types import Voucher
from troth.protocol.types import Hash32

LATE_BLOCKS = 65
"""More than half of the lag: a secret that comes then is late."""


def evidence_of(trial: Trial) -> Evidence:
    """All that the client has written down of its order."""
    return case_file(trial.entry, trial.client.session.domain)


async def convict(trial: Trial, evidence: Evidence) -> None:
    """Whoever holds the evidence acts: here the wallet of the client that goes to court."""
    court = trial.network.clients["suer"].session.opener
    assert isinstance(court, Court)
    await court.office.courtroom.after(trial.network.follower.block - 1, 1.0)
    found = await court.office.opener.assess(evidence)
    assert found.convictions, f"nobody is convicted: {found.words}"
    await court.office.opener.convict(found.convictions[0])
    await trial.network.follower.catch_up()


def best_word(trial: Trial) -> bytes:
    """The word of the client's tab on which its scheduler stands, as it has it on disk."""
    rows = rows_of(trial.network.plan.home("scheduler") / "market.sqlite", "SELECT tab, data FROM client_tab")
    return next(bytes(data) for tab, data in rows if bytes(tab) == trial.client.tab)


def tab_secret(trial: Trial) -> bytes:
    """The secret of the key of the client's tab."""
    session = trial.client.session
    return session.keyring.key(session.books.record(trial.client.tab).tab.key).secret


async def calls_of(trial: Trial) -> MarketCalls:
    """The client's connection to its scheduler."""
    session = trial.client.session
    return await session.calls(session.tab_context_of(trial.client.tab))


async def placed(trial: Trial, tokens: int | None = None) -> tuple[TabContext, OrderRecord]:
    """An order that is written down, with its number and voucher, and not sent."""
    session, row = trial.client.session, trial.row
    tab_context = session.tab_context_of(trial.client.tab)
    offer = await session.open_tab_context(tab_context)
    wish = Wish(SamplingChoices(tokens or row.tokens, 0), CheckWish.read(row.check))
    entry = building.place(session, tab_context, offer, trial.prompt(secrets.randbelow(8)), wish, new_question(), 0)
    trial.network.notes.write(entry.identifier, dict(row.cheats))
    trial.orders.append(entry.identifier)
    return tab_context, entry


async def send(trial: Trial, tokens: int | None = None) -> AsyncGenerator[Any, None]:
    """An order up to its draw, and nothing more."""
    tab_context, entry = await placed(trial, tokens)
    course = Course(trial.client.session, tab_context, entry)
    async with aclosing(course.send()) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                trial.nodes = step.nodes
            yield step
    trial.note_answered()


async def finish(trial: Trial) -> None:
    """The secret of an order that was drawn is shown, and its check followed to the end."""
    session = trial.client.session
    async with aclosing(OrderSettlement(session, session.tab_context_of(trial.client.tab), trial.entry).run()) as steps:
        async for _ in steps:
            continue


async def show(trial: Trial, secret: Hash32 | None = None) -> str:
    """Show the order's first secret, or another one; what the scheduler says to it."""
    submission = trial.entry.submission
    assert submission is not None
    secret = secret or secrets_of(trial.client.session, submission.order.message, master(trial)).draw
    try:
        async with aclosing((await calls_of(trial)).show(trial.order, secret)) as lines:
            return json.dumps(await anext(lines, None))
    except (SchedulerRefusal, ClientError) as error:
        return error.what


def master(trial: Trial) -> bytes:
    """What the secrets of a tab's orders follow from."""
    session = trial.client.session
    return master_of(session.keyring.key(session.books.record(trial.client.tab).tab.key))


async def refused_order(trial: Trial, change: Callable[[Submission], Submission]) -> None:
    """An order that is sent with a change; the client then gives it up, and nothing is owed."""
    _, entry = await placed(trial)
    assert entry.submission is not None
    trial.note_answered()
    outcome = "taken"
    try:
        async with aclosing((await calls_of(trial)).submit(change(entry.submission))) as lines:
            trial.found.said = json.dumps(await anext(lines, None))
    except SchedulerRefusal as error:
        outcome, trial.found.said = "refused", error.what
    trial.note_end(outcome)
    give_up(trial.client.session, trial.client.session.journal.entry(entry.identifier), "refused: by design")


async def paid_word(trial: Trial) -> Voucher:
    """The word that pays an answer, once its scheduler stands on it."""
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    await trial.until(trial.word_arrived, "the payment at the scheduler")
    best = trial.client.session.books.record(trial.client.tab).voucher
    assert best is not None, "a tab that paid has a voucher"
    return best.message


async def refused_word(trial: Trial, word: Voucher) -> None:
    """Tell the scheduler another word on the tab; whether it takes it, refuses it, or nothing changes."""
    session = trial.client.session
    record = session.books.record(trial.client.tab)
    signed = sign(word, session.domain, tab_secret(trial))
    trial.note_answered()
    try:
        before = best_word(trial)
        await (await calls_of(trial)).acknowledge(Acknowledgement(record.tab, signed))
        trial.note_end("changes nothing" if best_word(trial) == before else "taken")
    except SchedulerRefusal as error:
        trial.found.said = error.what
        trial.note_end("refused")


@contextmanager
def secrets_kept(session: PayerSession) -> Iterator[None]:
    """This client's programs show no secret meanwhile: the part of them that is replaced here."""
    honest, open_again = OrderSettlement.run, asyncio.Event()

    async def run(self: OrderSettlement) -> AsyncGenerator[Any, None]:
        if self._session is session:
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


async def undrawn(trial: Trial) -> None:
    """An order whose client shows its secret to nobody until it is too late: paid once the lag is over."""
    with secrets_kept(trial.client.session):
        async with aclosing(send(trial)) as steps:
            async for _ in steps:
                continue
        await trial.network.wind(LATE_BLOCKS)
        late = trial.network.follower.block
        await trial.until(lambda: trial.client.session.block >= late, "the client's view of these blocks")
    # The keeper leaves an order for a while to the process that sent it.
    await finish(trial)
    await trial.until(lambda: trial.entry.phase is Phase.UNDRAWN, "the end of the lottery")


async def stop_programs(trial: Trial) -> None:
    """Nothing of the client goes on in the background any more: its machine is off."""
    await trial.client.running.keeper.stop()


@contextmanager
def without_summons(trial: Trial) -> Iterator[None]:
    """The client asks for nothing on chain meanwhile: who pays for a summons is another row's."""
    keeper = trial.client.running.keeper
    summons, keeper.summons = keeper.summons, None
    try:
        yield
    finally:
        keeper.summons = summons
