"""Orders, words and secrets that a client sends by hand, prices that change under an order, and summonses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from adversaries.network import ASK
from adversaries.on_chain import try_call, word_of_order
from adversaries.plan import key_of
from adversaries.rules import set_rule
from adversaries.steps import (
    LATE_BLOCKS,
    calls_of,
    finish,
    paid_word,
    placed,
    refused_order,
    refused_word,
    send,
    show,
    tab_secret,
    undrawn,
)
from adversaries.trial import Trial
from troth.client.orders.calls import SchedulerRefusal
from troth.client.orders.course import Course
from troth.client.orders.evidence import served_of
from troth.client.orders.summoning import base_fee
from troth.client.orders.updates import ServedUpdate
from troth.protocol.market import lottery
from troth.protocol.market.bodies import Submission
from troth.protocol.market.calls import view
from troth.protocol.market.lottery import Secrets
from troth.protocol.market.messages import sign, summons_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import SummonsKind
from troth.protocol.market.signed import SignedOrder
from troth.protocol.market.types import Ask
from troth.protocol.types import Hash32

SERVED_ONCE, ANSWERED = "served once, paid once", "answered"


# ------------------------------------------------------------------------------------- orders that are not to be taken


async def same_number(trial: Trial) -> None:
    """A number that was served and paid stands for no second order."""
    await paid_word(trial)
    number = trial.entry.sequence
    trial.begin_anew()
    await _ordered(trial, sequence=number)


async def too_cheap(trial: Trial) -> None:
    """An order below the scheduler's list."""
    await _ordered(trial, written_price=1)


async def too_few_checks(trial: Trial) -> None:
    """An order that is checked less often than its class demands: a node would know that nobody looks."""
    await _ordered(trial, check_rate=1)


async def expired(trial: Trial) -> None:
    """An order whose time is over."""
    await _ordered(trial, deadline=int(time.time()) - 5)


async def long_ago(trial: Trial) -> None:
    """An order over members of long ago, among whom friends may have been."""
    age, follower = trial.client.session.parameters.reference_age, trial.network.follower
    await trial.network.wind(max(age + 10 - follower.block, 0))
    await _ordered(trial, reference_block=follower.block - age - 5)


async def to_come(trial: Trial) -> None:
    """An order over members of a block that nobody knows yet."""
    await _ordered(trial, reference_block=trial.network.follower.block + 1_000)


async def another_class(trial: Trial) -> None:
    """An order for a class that is not served here, with rules of its client's choice."""
    await _ordered(trial, execution_class=Hash32(b"\x31" * 32))


async def strangers_order(trial: Trial) -> None:
    """An order on somebody's tab that its key did not sign."""
    domain = trial.client.session.domain

    def change(sent: Submission) -> Submission:
        return replace(sent, order=sign(sent.order.message, domain, key_of("stranger").secret))

    await refused_order(trial, change)


async def another_request(trial: Trial) -> None:
    """A request that is not the one that was signed: nodes would answer what nobody ordered."""

    def change(sent: Submission) -> Submission:
        return replace(sent, request=sent.request[:-1] + bytes([sent.request[-1] ^ 1]))

    await refused_order(trial, change)


async def not_authorised(trial: Trial) -> None:
    """A word that authorises less than its order may cost."""
    domain = trial.client.session.domain

    def change(sent: Submission) -> Submission:
        word = sent.voucher.message
        return replace(sent, voucher=sign(replace(word, authorised=word.spent), domain, tab_secret(trial)))

    await refused_order(trial, change)


async def _ordered(trial: Trial, **changes: Any) -> None:
    """An order of the tab's own key, with other fields."""
    domain = trial.client.session.domain

    def change(sent: Submission) -> Submission:
        return replace(sent, order=sign(replace(sent.order.message, **changes), domain, tab_secret(trial)))

    await refused_order(trial, change)


async def sent_twice(trial: Trial) -> None:
    """An order that comes again is the same order: it is computed and paid once."""
    before = trial.client.session.books.record(trial.client.tab).book.spent
    tab_context, entry = await placed(trial)
    submission = entry.submission
    assert submission is not None
    await _read(trial, Course(trial.client.session, tab_context, entry))
    try:
        async with aclosing((await calls_of(trial)).submit(submission)) as lines:
            trial.found.said = str(await anext(lines, None))
    except SchedulerRefusal as error:
        trial.found.said = error.what
    await finish(trial)
    spent = trial.client.session.books.record(trial.client.tab).book.spent - before
    trial.note_end(SERVED_ONCE if spent == trial.entry.fee else f"paid {spent} of {trial.entry.fee}")


async def _read(trial: Trial, course: Course) -> None:
    async with aclosing(course.send()) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                trial.nodes = step.nodes
    trial.note_answered()


# ---------------------------------------------------------------------------------------------------- words and secrets


async def beyond_its_orders(trial: Trial) -> None:
    """A word that pays numbers which were not ordered yet: they would never be paid."""
    best = await paid_word(trial)
    await refused_word(trial, replace(best, acknowledged_through=best.sequence + 5))


async def pays_too_little(trial: Trial) -> None:
    """A word that acknowledges an answer, and pays half of it."""
    await undrawn(trial)
    word, fee = word_of_order(trial).message, trial.entry.fee or 0
    half = replace(word, spent=word.spent + fee // 2, acknowledged_through=word.sequence, exceptions=0)
    await refused_word(trial, half)


async def same_word_again(trial: Trial) -> None:
    """A word that comes twice pays once."""
    await refused_word(trial, await paid_word(trial))


async def secret_again(trial: Trial) -> None:
    """Who uses a secret twice tells its scheduler beforehand what is drawn; who serves it is checked all the same."""
    honest, kept = lottery.secrets_for, Secrets(Hash32(b"\x41" * 32), Hash32(b"\x42" * 32))

    def secrets_for(master: bytes, tab: Hash32, sequence: int, request_hash: Hash32) -> Secrets:
        return kept if tab == trial.client.tab else honest(master, tab, sequence, request_hash)

    set_rule(lottery, "secrets_for", secrets_for)
    try:
        await trial.ask()
        trial.begin_anew()
        await trial.ask_until_served()
        await trial.wait_for_the_end()
    finally:
        set_rule(lottery, "secrets_for", honest)


async def another_secret(trial: Trial) -> None:
    """A secret that the order did not commit to would choose whether it hits."""
    async with aclosing(send(trial)) as steps:
        async for _ in steps:
            continue
    said = await show(trial, Hash32(b"\x43" * 32))
    await finish(trial)
    trial.found.said = said
    trial.note_end("refused" if "not the first secret" in said else f"taken: {said}")


async def reads_anothers(trial: Trial) -> None:
    """An order's number is on chain and in logs; its text is shown to who knows the salt."""
    await trial.ask()
    curious = trial.network.clients["suer"].session
    calls = await curious.calls(curious.tab_context_of(trial.network.clients["suer"].tab))
    trial.note_answered()
    try:
        async with aclosing(calls.again(trial.order, Hash32(b"\x44" * 32))) as lines:
            trial.found.said = str(await anext(lines, None))
        trial.note_end("shown")
    except SchedulerRefusal as error:
        trial.found.said = error.what
        trial.note_end("refused")


async def price_changes(trial: Trial) -> None:
    """Nodes ask ten times as much while they serve: an order is worth the asks of its block."""
    stage, changed = trial.network.stage, []
    dear = Ask(10 * ASK.prompt, 10 * ASK.cached, 10 * ASK.written)
    tab_context, entry = await placed(trial)
    async with aclosing(Course(trial.client.session, tab_context, entry).send()) as steps:
        async for step in steps:
            if isinstance(step, ServedUpdate):
                trial.nodes = step.nodes
                for segment, node in zip(trial.network.plan.segments, step.nodes, strict=True):
                    key = next(one for one in stage.nodes if one.address == node)
                    changed.append((stage.owner_of(key), (node, segment.first, segment.end)))
                    await stage.send(changed[-1][0], Part.REGISTRY, "setAsk", *changed[-1][1], dear)
    trial.note_answered()
    await finish(trial)
    most = trial.entry.most
    for owner, place in changed:
        await stage.send(owner, Part.REGISTRY, "setAsk", *place, ASK)
    paid = trial.entry.paid or 0
    trial.note_end("paid as ordered" if 0 < paid <= most and changed else f"paid {paid} of {most}")


# ------------------------------------------------------------------------------------------------------------ summonses


async def summons_what_came(trial: Trial) -> None:
    """A check that was done is asked for on chain all the same: its answer is paid for by who asked."""
    await _checked(trial)
    await trial.network.stage.send(
        trial.client.key, Part.SUMMONS, "summonCheck", *_shown(trial), value=await _least(trial)
    )
    await trial.network.follower.catch_up()
    name = summons_id(trial.order, SummonsKind.CHECK, 0)
    await trial.until(lambda: trial.network.follower.state.summons[name].answered is not None, "an answer")
    trial.note_end(ANSWERED if trial.network.follower.state.summons[name].answered else "not answered")


async def summons_twice(trial: Trial) -> None:
    """One place is asked for once."""
    await summons_what_came(trial)
    await try_call(trial, trial.client.key, Part.SUMMONS, "summonCheck", *_shown(trial), value=await _least(trial))


async def summons_for_nothing(trial: Trial) -> None:
    """Who asks puts up the gas of the answer."""
    await _checked(trial)
    await try_call(trial, trial.client.key, Part.SUMMONS, "summonCheck", *_shown(trial), value=1)


async def summons_late(trial: Trial) -> None:
    """After half of the lag nobody need answer any more: a client cannot keep its checks for one day."""
    await _checked(trial)
    await trial.network.wind(LATE_BLOCKS)
    await try_call(trial, trial.client.key, Part.SUMMONS, "summonCheck", *_shown(trial), value=await _least(trial))


async def summons_invented(trial: Trial) -> None:
    """A draw that the scheduler did not sign."""
    await _checked(trial)
    order, draw, signature, segment, secret = _shown(trial)
    invented = replace(draw, results=Hash32(b"\x51" * 32))
    arguments = (order, invented, signature, segment, secret)
    await try_call(trial, trial.client.key, Part.SUMMONS, "summonCheck", *arguments, value=await _least(trial))


async def summons_another_secret(trial: Trial) -> None:
    """A secret that the order did not commit to."""
    await _checked(trial)
    arguments = (*_shown(trial)[:4], Hash32(b"\x52" * 32))
    await try_call(trial, trial.client.key, Part.SUMMONS, "summonCheck", *arguments, value=await _least(trial))


async def _checked(trial: Trial) -> None:
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")


def _shown(trial: Trial) -> tuple[Any, ...]:
    """What a summons over the first segment's check shows."""
    served = served_of(trial.entry)
    assert served is not None
    tab, order, draw = served.submission.tab, served.submission.order, served.lottery.draw
    signed = SignedOrder(order.message, tab.payer, tab.payee, tab.key, order.signature)
    return signed, draw.message, draw.signature, 0, served.secret


async def _least(trial: Trial) -> int:
    """A deposit within what is taken."""
    market = trial.network.stage.market
    asked = view(market.contracts, Part.SUMMONS, "depositFor", SummonsKind.CHECK, await base_fee(market), returns=int)
    least: int = await market.read(asked)
    return least * 3 // 2


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        same_number,
        too_cheap,
        too_few_checks,
        expired,
        long_ago,
        to_come,
        another_class,
        strangers_order,
        another_request,
        not_authorised,
        sent_twice,
        beyond_its_orders,
        pays_too_little,
        same_word_again,
        secret_again,
        another_secret,
        reads_anothers,
        price_changes,
        summons_what_came,
        summons_twice,
        summons_for_nothing,
        summons_late,
        summons_invented,
        summons_another_secret,
    )
}
