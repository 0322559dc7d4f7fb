"""Calls of the contracts by hand: by who cheats, with its own key, past every shipped program."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from adversaries.money import LIMIT, rows_of
from adversaries.notes import SCHEDULER
from adversaries.registry import REFUSED, STRUCK
from adversaries.trial import Trial
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.protocol.market import canonical, claims
from troth.protocol.market.claims import SumTree
from troth.protocol.market.messages import Signed, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.state import ClaimRecord, TabRecord
from troth.protocol.market.types import Claim, Tab, Voucher
from troth.protocol.types import Address, Hash32


async def try_call(trial: Trial, key: Key, part: Part, function: str, *arguments: object, value: int = 0) -> None:
    """Send a call that must be refused; what the contract says goes into the finding."""
    trial.note_answered()
    try:
        await trial.network.stage.send(key, part, function, *arguments, value=value)
        trial.note_end("taken")
    except ChainRejected as error:
        trial.found.said += f"{error}"
        trial.note_end(REFUSED)
    await trial.network.follower.catch_up()


def tab_of(trial: Trial) -> Tab:
    """The client's tab."""
    return trial.client.session.books.record(trial.client.tab).tab


def record_of(trial: Trial, tab: Hash32 | None = None) -> TabRecord:
    """A tab as the chain has it; the client's."""
    return trial.network.follower.state.tabs[tab or trial.client.tab]


def claim_of(trial: Trial, tab: Hash32 | None = None) -> ClaimRecord:
    """The claim under way on a tab; the client's."""
    found = record_of(trial, tab).claim
    assert found is not None, "no claim is under way"
    return found


def word_of_order(trial: Trial) -> Signed[Voucher]:
    """The word with which the client sent its order: it authorises the order, and pays nothing of it."""
    submission = trial.entry.submission
    assert submission is not None
    return submission.voucher


def scheduler_owner(trial: Trial) -> Key:
    """Who may claim for the scheduler, by another account than its process sends with."""
    stage = trial.network.stage
    return stage.owner_of(stage.scheduler)


async def claim(trial: Trial, amounts: Mapping[int, int], word: Signed[Voucher], *, defended: bool = True) -> None:
    """The scheduler's owner claims these numbers; ``defended``: its process answers objections."""
    made, tree = claims.claim_of(word.message, amounts)
    await file_claim(trial, made, tree, amounts, word, defended=defended)


async def file_claim(
    trial: Trial, made: Claim, tree: SumTree, amounts: Mapping[int, int], word: Signed[Voucher], *, defended: bool
) -> None:
    """The same for a claim whose tree says other things than its numbers."""
    if defended:
        defend(trial, tree, amounts)
    stage = trial.network.stage
    arguments = (tab_of(trial), word.message, word.signature, made)
    trial.note_answered()
    await stage.send(scheduler_owner(trial), Part.BANK, "claim", *arguments)
    await trial.network.follower.catch_up()


def defend(trial: Trial, tree: SumTree, amounts: Mapping[int, int]) -> None:
    """The scheduler's process knows what a claim says of each number: from now on it answers objections."""
    kept = msgspec.msgpack.encode({str(number): str(amount) for number, amount in amounts.items()})
    with sqlite3.connect(trial.network.plan.home("scheduler") / "market.sqlite", timeout=10) as database:
        row = (bytes(tree.root), bytes(trial.client.tab), kept)
        database.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", row)


async def until_settled(trial: Trial, tab: Hash32 | None = None) -> int:
    """Let the delay pass; the payee's own program settles. What was redeemed on the tab in the end."""
    delay = claim_of(trial, tab).state.settles_at - trial.network.follower.block
    await trial.network.wind(max(delay, 0) + 1)
    await trial.until(lambda: record_of(trial, tab).claim is None, "the end of a claim")
    return record_of(trial, tab).redeemed


async def until_struck(trial: Trial, tab: Hash32 | None = None, asked: int = 1) -> None:
    """The payer's own program objects, nobody can show a number, and the payer's program strikes the claim.

    ``asked``: numbers for which it must have asked by then; those that were shown cost their deposits.
    """
    standing, deposits = claim_of(trial, tab), dict[int, int]()
    answered = trial.asked.setdefault(trial.row.client if tab is None else SCHEDULER, {})

    def is_asked() -> bool:
        record = record_of(trial, tab).claim
        if record is None:
            return True
        deposits.update({number: one.deposit for number, one in record.objections.items()})
        answered.update({number: deposits[number] for number in record.answered if number in deposits})
        return len({*record.objections, *record.answered}) >= asked and bool(record.objections)

    await trial.until(is_asked, f"{asked} objections")
    before = record_of(trial, tab).redeemed
    await trial.network.wind(trial.client.session.parameters.answer_window + 1)
    await trial.until(lambda: record_of(trial, tab).claim is None, "the end of a claim")
    # A strike counts its own cost as redeemed; a settlement pays what was claimed.
    after = record_of(trial, tab).redeemed
    is_struck = trial.network.follower.block < standing.state.settles_at and after < standing.state.owed
    trial.note_end(STRUCK if is_struck else f"paid {after - before}")


def node_word(trial: Trial, node: Address) -> tuple[Tab, Signed[Voucher]]:
    """A node's tab with the scheduler, and the word on it that the node holds."""
    stage = trial.network.stage
    tab = Tab(stage.scheduler.address, node, stage.scheduler.address)
    path = trial.network.plan.home(trial.accountant.names[node]) / "market.sqlite"
    held = {bytes(name): bytes(word) for name, word in rows_of(path, "SELECT tab, voucher FROM tabs")}
    return tab, canonical.decode(Signed[Voucher], held[bytes(tab_id(tab))], LIMIT)
