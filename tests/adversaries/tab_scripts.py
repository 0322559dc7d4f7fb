"""Tabs and vouchers: words that were paid, words of others, tabs that close, stolen keys, and old backups."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from adversaries.network import Client, going_on
from adversaries.on_chain import record_of, tab_of, try_call
from adversaries.plan import key_of
from adversaries.registry import NEW_CLIENT
from adversaries.steps import calls_of, paid_word, placed, stop_programs, tab_secret
from adversaries.trial import LOOK_SECONDS, TRIAL_SECONDS, Trial
from troth.chain.keystore import Key
from troth.client.home import Home
from troth.client.orders.calls import SchedulerRefusal
from troth.client.orders.journal import Phase
from troth.client.orders.paying import give_up
from troth.protocol.market.bodies import Acknowledgement, Submission
from troth.protocol.market.messages import Signed, market_domain, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.types import TabConsent, Voucher
from troth.protocol.typed_data import Domain
from troth.protocol.types import address_from_bytes

GOES_ON, BOUNDED = "goes on, paid once", "bounded by its tab"


async def redeems_twice(trial: Trial) -> None:
    """A word pays what was not paid yet."""
    word = await _redeemed(trial)
    await _redeem(trial, word)


async def redeems_older(trial: Trial) -> None:
    """An older word says less than was redeemed."""
    older = await _redeemed(trial)
    trial.begin_anew()
    await _redeemed(trial)
    await _redeem(trial, older)


async def redeems_altered(trial: Trial) -> None:
    """The signature is of another word."""
    word = await _redeemed(trial)
    await _redeem(trial, replace(word, message=_more(word.message)))


async def redeems_another_banks(trial: Trial) -> None:
    """A word in another deployment's domain, under the same key."""
    await _redeem_in(trial, market_domain(31337, address_from_bytes(b"\x77" * 20)))


async def redeems_another_chains(trial: Trial) -> None:
    """A word on another chain, of a Bank at the same address: of a fork, say."""
    await _redeem_in(trial, replace(trial.client.session.domain, chain_id=1))


async def _redeem_in(trial: Trial, domain: Domain) -> None:
    word = await _redeemed(trial)
    await _redeem(trial, sign(_more(word.message), domain, tab_secret(trial)))


async def redeems_anothers(trial: Trial) -> None:
    """A word on one tab, shown for another one."""
    word = await _redeemed(trial)
    other = trial.network.clients["suer"]
    tab = other.session.books.record(other.tab).tab
    await try_call(trial, trial.network.stage.scheduler, Part.BANK, "redeem", tab, word.message, word.signature)


async def spends_above(trial: Trial) -> None:
    """A word of the tab's own key that contradicts itself."""
    word = (await _redeemed(trial)).message
    above = replace(word, spent=word.authorised + 10**9)
    await _redeem(trial, sign(above, trial.client.session.domain, tab_secret(trial)))


async def strangers_voucher(trial: Trial) -> None:
    """A word that somebody else signed."""
    word = (await _redeemed(trial)).message
    await _redeem(trial, sign(_more(word), trial.client.session.domain, key_of("stranger").secret))


async def authorises_too_much(trial: Trial) -> None:
    """A word that authorises more than the tab holds is worth what it holds: the order on it is not taken."""
    session = trial.client.session
    _, entry = await placed(trial)
    submission = entry.submission
    assert submission is not None
    state = session.state.tab_state(trial.client.tab)
    word = replace(submission.voucher.message, authorised=10 * (state.balance + state.redeemed))
    order = replace(submission.order.message, max_fee=2 * (state.balance + state.redeemed))
    secret = tab_secret(trial)
    trial.note_answered()
    sent = replace(submission, order=sign(order, session.domain, secret), voucher=sign(word, session.domain, secret))
    await _submit(trial, sent)
    give_up(session, session.journal.entry(entry.identifier), "refused: by design")


# ---------------------------------------------------------------------------------------------------------- closing


async def takes_back_at_once(trial: Trial) -> None:
    """What a payee may still show stays in the tab until everything has had its time."""
    await _redeemed(trial)
    await trial.network.stage.send(trial.client.key, Part.BANK, "close", tab_of(trial))
    await try_call(trial, trial.client.key, Part.BANK, "finishClosing", tab_of(trial))


async def orders_while_closing(trial: Trial) -> None:
    """An order that was signed before the tab began to close, and is sent after."""
    session = trial.client.session
    _, entry = await placed(trial)
    await trial.network.stage.send(trial.client.key, Part.BANK, "close", tab_of(trial))
    await trial.network.follower.catch_up()
    await _scheduler_knows(trial, trial.network.follower.block)
    submission = entry.submission
    assert submission is not None
    trial.note_answered()
    await _submit(trial, submission)
    give_up(session, session.journal.entry(entry.identifier), "refused: by design")


async def opens_again(trial: Trial) -> None:
    """A tab that was closed and opened again remembers what was redeemed: its old words pay nothing."""
    word = await _redeemed(trial)
    stage, tab = trial.network.stage, tab_of(trial)
    await stage.send(trial.client.key, Part.BANK, "close", tab)
    await trial.network.follower.catch_up()
    await trial.network.wind(record_of(trial).closes_at - trial.network.follower.block + 1)
    await stage.send(trial.client.key, Part.BANK, "finishClosing", tab)
    await stage.open_tab(trial.client.key, tab.payee, Key.from_secret(tab_secret(trial)), 10**15)
    await _redeem(trial, word)


async def in_anothers_name(trial: Trial) -> None:
    """A consent that was seen on its way serves its payer alone."""
    tab = tab_of(trial)
    consent = sign(TabConsent(tab.payer, tab.payee), trial.client.session.domain, tab_secret(trial))
    arguments = (tab.payee, tab.key, 1, consent.signature)
    await try_call(trial, key_of("stranger"), Part.BANK, "openTab", *arguments, value=1)


# ------------------------------------------------------------------------------------------------------- stolen keys


async def thief_spends(trial: Trial) -> None:
    """Who has the tab key and its payee for a friend takes what is in that tab, and nothing else."""
    word = await paid_word(trial)
    state = trial.network.follower.state.tab_state(trial.client.tab)
    everything = state.balance + state.redeemed
    stolen = replace(word, spent=everything, authorised=everything, sequence=word.sequence + 1)
    stolen = replace(stolen, acknowledged_through=stolen.sequence, exceptions=0)
    before = await trial.accountant.count()
    trial.note_answered()
    signed = sign(stolen, trial.client.session.domain, tab_secret(trial))
    await (await calls_of(trial)).acknowledge(Acknowledgement(tab_of(trial), signed))
    await trial.until(lambda: record_of(trial).redeemed == everything, "the redemption")
    trial.is_payer_gone = True
    lost = -(await trial.accountant.count()).since(before).wealth[NEW_CLIENT]
    trial.note_end(BOUNDED if 0 < lost <= everything else f"lost {lost} of {everything}")


async def thief_closes(trial: Trial) -> None:
    """The tab key takes nothing out: the rest goes to the payer, who alone closes."""
    thief = Key.from_secret(tab_secret(trial))
    await try_call(trial, thief, Part.BANK, "close", tab_of(trial))


# -------------------------------------------------------------------------------------------------------- old wallets


async def old_backup(trial: Trial) -> None:
    """A wallet as it was a month ago, after much else was paid: it asks for the newest word, and goes on from there."""
    paid: list[int] = []
    await _ask_paid(trial, paid)
    backup = _backed_up(trial)
    for _ in range(2):
        await _ask_paid(trial, paid)
    before = trial.client.session.books.record(trial.client.tab).book
    await trial.until(trial.word_arrived, "the word at the scheduler")
    await trial.network.wind(5 * trial.client.session.parameters.lag)
    await stop_programs(trial)
    restored = await _restored(trial, backup)
    await _ask_paid(trial, paid)
    after = restored.session.books.record(restored.tab).book
    once = (after.spent, after.sequence) == (sum(paid), before.sequence + 1)
    trial.note_end(GOES_ON if once else f"{before} became {after}")


async def two_machines(trial: Trial) -> None:
    """Two copies of one wallet take turns: each finds out what the other one has ordered, and no number is two."""
    paid: list[int] = []
    await _ask_paid(trial, paid)
    backup, first = _backed_up(trial), trial.client
    second = await _restored(trial, backup)
    for machine in (first, second, first, second):
        trial.network.clients[NEW_CLIENT] = machine
        await _ask_paid(trial, paid)
    after = second.session.books.record(second.tab).book
    trial.note_end(GOES_ON if after.spent == sum(paid) else f"paid {after.spent} of {paid}")


async def _ask_paid(trial: Trial, paid: list[int]) -> None:
    """One question, checked and paid; the trial is about it alone.

    ``paid``: what was paid before, to which this is added.
    """
    trial.paid_before = sum(paid)
    trial.orders.clear()
    trial.begin_anew()
    await trial.ask(check="always")
    # A machine whose number was taken is refused, asks for the newest word, and orders once more by itself.
    journal = trial.client.session.journal
    trial.orders = [one for one in trial.orders if journal.entry(one).phase is not Phase.FAILED]
    await trial.until(lambda: trial.entry.paid is not None, f"the payment ({trial.found.said})")
    await trial.until(trial.word_arrived, "the word at the scheduler")
    paid.append(trial.entry.paid or 0)


def _backed_up(trial: Trial) -> Path:
    """A copy of a whole home, its tabs as a backup program copies a file that is in use."""
    home = trial.client.home
    copy = home.root.with_name(f"{home.root.name} backup")
    shutil.copytree(home.root, copy, ignore=shutil.ignore_patterns(f"{home.tabs.name}*"))
    source, target = sqlite3.connect(home.tabs), sqlite3.connect(Home(copy).tabs)
    source.backup(target)
    source.close()
    target.close()
    return copy


async def _restored(trial: Trial, backup: Path) -> Client:
    """The client of a backup, in place of the one of now."""
    going = going_on(trial.network, f"client of {trial.row.name}", Home(backup), trial.client.tab)
    trial.network.clients[NEW_CLIENT] = await trial.stack.enter_async_context(going)
    return trial.client


# ------------------------------------------------------------------------------------------------------ what they share


async def _redeemed(trial: Trial) -> Signed[Voucher]:
    """The word that paid an answer, and that the scheduler's own program has redeemed."""
    await paid_word(trial)
    word = trial.client.session.books.record(trial.client.tab).voucher
    assert word is not None
    await trial.until(lambda: record_of(trial).redeemed >= word.message.spent, "the redemption")
    return word


def _more(word: Voucher) -> Voucher:
    return replace(word, spent=word.spent + 10**9, authorised=word.authorised + 10**9)


async def _redeem(trial: Trial, word: Signed[Voucher]) -> None:
    arguments = (tab_of(trial), word.message, word.signature)
    await try_call(trial, key_of("stranger"), Part.BANK, "redeem", *arguments)


async def _scheduler_knows(trial: Trial, block: int) -> None:
    calls = (await calls_of(trial))._calls
    async with asyncio.timeout(TRIAL_SECONDS):
        while (await calls.get("/v1/info"))["block"] < block:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(LOOK_SECONDS)


async def _submit(trial: Trial, submission: Submission) -> None:
    """Send an order that must be refused."""
    try:
        lines = (await calls_of(trial)).submit(submission)
        trial.found.said = str(await anext(lines, None))
        await lines.aclose()
        trial.note_end("taken")
    except SchedulerRefusal as error:
        trial.found.said = error.what
        trial.note_end("refused")


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        redeems_twice,
        redeems_older,
        redeems_altered,
        redeems_another_banks,
        redeems_another_chains,
        redeems_anothers,
        spends_above,
        strangers_voucher,
        authorises_too_much,
        takes_back_at_once,
        orders_while_closing,
        opens_again,
        in_anothers_name,
        thief_spends,
        thief_closes,
        old_backup,
        two_machines,
    )
}
