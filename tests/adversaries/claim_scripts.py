"""Claims: of what nobody owes, of what was paid, and by whom they are not; and objections to true ones.

The client's and the scheduler's own programs look after each claim, as they do for every user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from adversaries.on_chain import (
    claim,
    claim_of,
    defend,
    file_claim,
    record_of,
    scheduler_owner,
    tab_of,
    try_call,
    until_settled,
    until_struck,
    word_of_order,
)
from adversaries.plan import key_of
from adversaries.registry import CLAIMED
from adversaries.steps import placed, secrets_kept, send, stop_programs, undrawn, without_summons
from adversaries.trial import Trial
from troth.client.orders.journal import Phase
from troth.client.orders.paying import give_up
from troth.protocol.market import claims
from troth.protocol.market.messages import Signed
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Claim, Voucher

PATIENCE = 3
"""Lags for which a scheduler waits on an open tab before it claims."""
ROOM = 200
"""Tokens of an order that is never sent."""


# ------------------------------------------------------------------------------------------- payers that do not pay


async def go_away(trial: Trial) -> None:
    """An answer is read to its end, and then the client's programs are gone for ever."""
    with secrets_kept(trial.client.session):
        async with aclosing(send(trial)) as steps:
            async for _ in steps:
                continue
        await stop_programs(trial)
    trial.is_payer_gone = True


async def vanishes(trial: Trial) -> None:
    """The scheduler claims by itself, once it has waited long enough, and is paid what the answer cost."""
    await go_away(trial)
    before = record_of(trial).redeemed
    await trial.network.wind(PATIENCE * trial.client.session.parameters.lag + 2)
    await trial.until(lambda: record_of(trial).claim is not None, "the scheduler's claim")
    owed = claim_of(trial).state.claim.total
    paid = await until_settled(trial) - before
    trial.note_end(CLAIMED if paid == owed > 0 else f"paid {paid} of {owed}")


async def closes_under_work(trial: Trial) -> None:
    """The scheduler claims as soon as the tab closes; what is left goes back to the payer once that is over."""
    await go_away(trial)
    before, stage, tab = record_of(trial).redeemed, trial.network.stage, tab_of(trial)
    await stage.send(trial.client.key, Part.BANK, "close", tab)
    await trial.network.follower.catch_up()
    await trial.until(lambda: record_of(trial).claim is not None, "the scheduler's claim")
    owed = claim_of(trial).state.claim.total
    paid = await until_settled(trial) - before
    closes = record_of(trial).closes_at - trial.network.follower.block
    await trial.network.wind(max(closes, 0) + 1)
    await stage.send(trial.client.key, Part.BANK, "finishClosing", tab)
    await trial.network.follower.catch_up()
    trial.note_end(CLAIMED if paid == owed > 0 else f"paid {paid} of {owed}")


# ------------------------------------------------------------------------------------------ claims of what is not owed


async def never_sent(trial: Trial) -> None:
    """A number that the client gave out and never sent is worth nothing: nobody can show its results."""
    unsent, amounts = await _served_beside_unsent(trial)
    await claim(trial, {unsent: amounts[unsent]}, word_of_order(trial), defended=False)
    await until_struck(trial)


async def more_than_worth(trial: Trial) -> None:
    """Twice what the results say; the room for it is another number's."""
    _, amounts = await _served_beside_unsent(trial)
    number = trial.entry.sequence
    await claim(trial, {number: 2 * amounts[number]}, word_of_order(trial))
    await until_struck(trial)


async def under_two_numbers(trial: Trial) -> None:
    """One answer stands for two numbers."""
    unsent, amounts = await _served_beside_unsent(trial)
    fee = amounts[trial.entry.sequence]
    await claim(trial, {unsent: fee, trial.entry.sequence: fee}, word_of_order(trial))
    await until_struck(trial)


async def under_a_number_left_out(trial: Trial) -> None:
    """The claim leaves a number out, and its tree has money there."""
    unsent, amounts = await _served_beside_unsent(trial)
    word, number = word_of_order(trial), trial.entry.sequence
    wanted = {unsent: amounts[unsent], number: amounts[number]}
    tree = claims.build(unsent, number, wanted)
    made = Claim(unsent, number, 1, tree.total, tree.root)
    await file_claim(trial, made, tree, wanted, word, defended=True)
    await until_struck(trial, asked=2)


async def beyond_the_last_number(trial: Trial) -> None:
    """The tree has money in its padding, where no number is."""
    first, amounts = await _served_beside_unsent(trial, unsent=2)
    number = trial.entry.sequence
    # Three places are named, a tree of three has four: the fourth one is beyond.
    hidden = {number: amounts[number], number + 1: amounts[first]}
    tree = replace(claims.build(first, number + 1, hidden), last=number)
    made = Claim(first, number, 0b011, tree.total, tree.root)
    await file_claim(trial, made, tree, hidden, word_of_order(trial), defended=False)
    await until_struck(trial)


async def what_failed(trial: Trial) -> None:
    """The order failed, and its client owes nothing: the claim by the word that still authorised it is struck."""
    with without_summons(trial):
        await trial.ask()
    await trial.until(lambda: trial.entry.phase is Phase.FAILED, "a failed order")
    await claim(trial, {trial.entry.sequence: trial.entry.most}, word_of_order(trial), defended=False)
    await until_struck(trial)


async def _served_beside_unsent(trial: Trial, unsent: int = 1) -> tuple[int, dict[int, int]]:
    """An order that was answered, whose word authorises earlier numbers, too, which were never sent.

    The first unsent number, and what it could cost and the answered one costs. The room is so large that the client
    finds more than one objection worth its gas.
    """
    given = [(await placed(trial, tokens=ROOM))[1] for _ in range(unsent)]
    trial.begin_anew()
    await undrawn(trial)
    session = trial.client.session
    for one in given:
        give_up(session, session.journal.entry(one.identifier), "never sent: by design")
    assert trial.entry.fee is not None
    return given[0].sequence, {given[0].sequence: given[0].most, trial.entry.sequence: trial.entry.fee}


# ---------------------------------------------------------------------------------------------- claims of what was paid


async def claims_what_was_paid(trial: Trial) -> None:
    """The word that pays a number cannot claim it."""
    await _paid(trial)
    word = trial.client.session.books.record(trial.client.tab).voucher
    assert word is not None
    number, fee = trial.entry.sequence, trial.entry.fee or 0
    tree = claims.build(number, number, {number: fee})
    made = Claim(number, number, 0, fee, tree.root)
    await try_call(trial, scheduler_owner(trial), Part.BANK, "claim", tab_of(trial), *_signed(word), made)


async def claims_by_an_old_word(trial: Trial) -> None:
    """An older word does not pay the number; but all that it can show was redeemed."""
    await _paid(trial)
    made, _ = claims.claim_of(word_of_order(trial).message, {trial.entry.sequence: trial.entry.fee or 0})
    arguments = (tab_of(trial), *_signed(word_of_order(trial)), made)
    await try_call(trial, scheduler_owner(trial), Part.BANK, "claim", *arguments)


async def by_voucher_and_claim(trial: Trial) -> None:
    """A claim that stands, and the voucher that pays the same number meanwhile: paid once."""
    await undrawn(trial)
    before, fee = record_of(trial).redeemed, trial.entry.fee or 0
    await claim(trial, {trial.entry.sequence: fee}, word_of_order(trial))
    await trial.network.wind(trial.client.session.parameters.lag)
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    await trial.until(lambda: record_of(trial).redeemed > before, "the voucher's redemption")
    paid = await until_settled(trial) - before
    trial.note_end("paid once" if paid == fee else f"paid {paid} of {fee}")


async def _paid(trial: Trial) -> None:
    """An answer that was checked, paid, and redeemed by the scheduler's own program."""
    await trial.ask(check="always")
    await trial.until(lambda: trial.entry.paid is not None, "the client's payment")
    spent = trial.client.session.books.record(trial.client.tab).book.spent
    await trial.until(lambda: record_of(trial).redeemed >= spent, "the redemption")


# ------------------------------------------------------------------------------ steps out of turn, beside a true claim


async def two_claims(trial: Trial) -> None:
    """One claim at a time."""
    await _true_claim(trial)
    made, _ = claims.claim_of(word_of_order(trial).message, {trial.entry.sequence: 1})
    arguments = (tab_of(trial), *_signed(word_of_order(trial)), made)
    await try_call(trial, scheduler_owner(trial), Part.BANK, "claim", *arguments)
    await until_settled(trial)


async def strangers_claim(trial: Trial) -> None:
    """Who is not the payee, nor its owner, claims nothing."""
    await undrawn(trial)
    made, _ = claims.claim_of(word_of_order(trial).message, {trial.entry.sequence: trial.entry.fee or 0})
    arguments = (tab_of(trial), *_signed(word_of_order(trial)), made)
    await try_call(trial, key_of("stranger"), Part.BANK, "claim", *arguments)


async def settles_more(trial: Trial) -> None:
    """The claim that is settled is the one that was filed."""
    await _true_claim(trial)
    state = claim_of(trial).state
    await trial.network.wind(state.settles_at - trial.network.follower.block)
    more = replace(state, owed=state.owed + 10**12)
    await try_call(trial, key_of("stranger"), Part.BANK, "settle", tab_of(trial), more)
    await trial.until(lambda: record_of(trial).claim is None, "the settlement")


async def settles_early(trial: Trial) -> None:
    """A payer has its time to object."""
    await _true_claim(trial)
    await try_call(trial, scheduler_owner(trial), Part.BANK, "settle", tab_of(trial), claim_of(trial).state)
    await until_settled(trial)


async def objects_to_true(trial: Trial) -> None:
    """The scheduler's own program shows the leaf, and is paid; who asked has paid the answer's gas."""
    await go_away(trial)
    await _claim_of_answer(trial)
    before = record_of(trial).redeemed
    arguments = (tab_of(trial), claim_of(trial).state, trial.entry.sequence)
    await trial.network.stage.send(trial.client.key, Part.BANK, "object", *arguments)
    await trial.network.follower.catch_up()
    await trial.until(lambda: bool(claim_of(trial).answered), "the scheduler's answer")
    owed = claim_of(trial).state.claim.total
    paid = await until_settled(trial) - before
    trial.note_end(CLAIMED if paid == owed > 0 else f"paid {paid} of {owed}")


async def objects_late(trial: Trial) -> None:
    """In the last window there is no time for an answer any more."""
    await _true_claim(trial)
    state = claim_of(trial).state
    last = state.settles_at - trial.client.session.parameters.answer_window
    await trial.network.wind(last - trial.network.follower.block + 1)
    await try_call(trial, trial.client.key, Part.BANK, "object", tab_of(trial), state, trial.entry.sequence)
    await until_settled(trial)


async def payee_objects(trial: Trial) -> None:
    """Who claims does not ask itself, to be paid for the answer."""
    await _true_claim(trial)
    arguments = (tab_of(trial), claim_of(trial).state, trial.entry.sequence)
    await try_call(trial, scheduler_owner(trial), Part.BANK, "object", *arguments)
    await until_settled(trial)


async def strikes_early(trial: Trial) -> None:
    """What may still be shown is not struck: the scheduler's program takes its time, and shows it."""
    await go_away(trial)
    # A unit less than it is worth: other rows claim as much of the same number, and their trees are known.
    stage, amounts, word = trial.network.stage, {trial.entry.sequence: trial.entry.most - 1}, word_of_order(trial)
    made, tree = claims.claim_of(word.message, amounts)
    await file_claim(trial, made, tree, amounts, word, defended=False)
    arguments = (tab_of(trial), claim_of(trial).state, trial.entry.sequence)
    await stage.send(trial.client.key, Part.BANK, "object", *arguments)
    await try_call(trial, trial.client.key, Part.BANK, "strike", *arguments)
    defend(trial, tree, amounts)
    await trial.until(lambda: bool(claim_of(trial).answered), "the scheduler's answer")
    await until_settled(trial)
    # The unit that was left out is claimed by the scheduler's own program as soon as it is late.
    await trial.network.wind(PATIENCE * trial.client.session.parameters.lag + 2)
    await trial.until(lambda: record_of(trial).claim is not None, "the claim of the unit that was left out")
    await until_settled(trial)


async def _true_claim(trial: Trial) -> None:
    """Of an answer that its client pays later, as it may."""
    await undrawn(trial)
    await claim(trial, {trial.entry.sequence: trial.entry.fee or 0}, word_of_order(trial))


async def _claim_of_answer(trial: Trial) -> None:
    """Of an answer whose client is gone: what it costs is what it could cost, since the toy writes to the end."""
    await claim(trial, {trial.entry.sequence: trial.entry.most}, word_of_order(trial))


def _signed(word: Signed[Voucher]) -> tuple[Voucher, bytes]:
    return word.message, word.signature


SCRIPTS: dict[str, Callable[[Trial], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        vanishes,
        closes_under_work,
        never_sent,
        more_than_worth,
        under_two_numbers,
        under_a_number_left_out,
        beyond_the_last_number,
        what_failed,
        claims_what_was_paid,
        claims_by_an_old_word,
        by_voucher_and_claim,
        two_claims,
        strangers_claim,
        settles_more,
        settles_early,
        objects_to_true,
        objects_late,
        payee_objects,
        strikes_early,
    )
}
