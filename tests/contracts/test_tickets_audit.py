"""`troth audit tickets` over the deployed contract: the money of every epoch, and what each call showed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from conftest import Anvil
from support.tickets_stage import TicketsStage, tickets_stage

from troth.audit import running
from troth.audit.evidence.inputs import values
from troth.audit.evidence.transactions import Transaction
from troth.audit.report import ExitCode, FindingKind
from troth.audit.tickets import audit_tickets, calls_of, reports
from troth.chain.keystore import Key
from troth.chain.tickets import TicketsContract, TicketsReading, read_tickets
from troth.protocol.bindings import TICKETS, functions_by_selector
from troth.protocol.bindings.structs import decode_parameters
from troth.protocol.calls import DecodedCall
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.tickets import messages
from troth.protocol.tickets.events import (
    SpendingPaid,
    TicketEvent,
    TicketRefunded,
    TicketsBought,
    TicketsFold,
    TicketSpent,
)
from troth.protocol.tickets.messages import Spending, TicketKey
from troth.protocol.types import Hash32

pytestmark = pytest.mark.chain

EPOCH = 100
SCHEDULER = Key.from_secret(keccak256(b"a scheduler of tickets"))


@pytest.fixture
async def stage(anvil: Anvil) -> AsyncIterator[TicketsStage]:
    """Tickets of two prices bought, some spent, one of them shown twice, and the others refunded after their epoch."""
    made = await tickets_stage(anvil.url, anvil.keys[4], anvil.mine, epoch_blocks=EPOCH)
    dear, cheap = await made.buy(2, 3), await made.buy(0, 5)
    tab_key = Key.generate()
    first = await made.spending(dear, [0, 2], SCHEDULER.address, tab_key, 1000)
    await made.spend(dear, first)
    # The same ticket again, beside one that is new: passed over, and not paid.
    again = await made.spending(dear, [0, 1], SCHEDULER.address, tab_key, 7)
    await made.spend(dear, again)
    await made.spend(cheap, await made.spending(cheap, [4], made.payer.address, Key.generate(), 0))
    await made.to_epoch(2)
    await made.send(messages.refund(cheap.purchase, [cheap.lost(0), cheap.lost(3)]))
    yield made
    await made.chain.close()
    await made.market.close()


async def looked(stage: TicketsStage) -> TicketsReading:
    """What is read of the contract."""
    place = running.read_chain(stage.url, stage.market.place, start=0, last=None, whole=False)
    state = (await place).subject.history.state
    return await read_tickets(stage.url, TicketsContract(stage.chain.contract), state)


async def test_every_unit_is_accounted_for(stage: TicketsStage) -> None:
    market = await running.read_chain(stage.url, stage.market.place, start=0, last=None, whole=False)
    report = await audit_tickets(stage.url, TicketsContract(stage.chain.contract), market.subject)
    assert (report.exit_code, report.findings) == (ExitCode.CLEAN, ())
    # Events, two prices, holdings; three calls that spent, one that refunded.
    assert [len(check.results) for check in report.checks] == [4, 4]
    assert len(report.tasks) == len({*report.tasks}) == 4
    reading = await looked(stage)
    fold, prices = reading.fold, stage.rules.prices
    assert fold.received == 3 * prices[2] + 5 * prices[0]
    assert fold.paid + fold.fees == 3 * prices[2] + prices[0]
    assert (fold.fees, fold.returned, fold.passed_over) == (2007, 2 * prices[0], 1)
    assert fold.held == reading.holdings == 2 * prices[0]


def refolded(reading: TicketsReading, events: list[TicketEvent]) -> TicketsReading:
    """The same with other events."""
    made = TicketsReading(reading.place, reading.domain, reading.block, tuple(events))
    made.holdings, made.outstanding = reading.holdings, dict(reading.outstanding)
    try:
        for event in events:
            made.fold.take(event)
        made.fold.require_settled()
    except InvalidField as error:
        made.broken = str(error)
    return made


async def test_each_lie_of_a_node_or_contract_is_seen(stage: TicketsStage) -> None:
    """Events left out, told twice, paid short, refunded early or dear: none of them folds."""
    reading = await looked(stage)
    events = list(reading.events)

    def places(kind: type) -> list[int]:
        return [place for place, one in enumerate(events) if isinstance(one, kind)]

    def changed(kind: type, **values: object) -> list[TicketEvent]:
        place = places(kind)[0]
        return [*events[:place], replace(events[place], **values), *events[place + 1 :]]

    bought, spent, paid = places(TicketsBought)[0], places(TicketSpent)[0], places(SpendingPaid)[0]
    purchase = events[bought]
    assert isinstance(purchase, TicketsBought)
    refund = events[places(TicketRefunded)[0]]
    lies = {
        "not sold": events[:bought] + events[bought + 1 :],
        "told twice": [*events[: spent + 1], events[spent], *events[spent + 1 :]],
        "not paid": events[:paid] + events[paid + 1 :],
        "paid too much": changed(SpendingPaid, amount=10**18),
        "paid short": changed(SpendingPaid, amount=1),
        "sold for less": changed(TicketsBought, paid=purchase.paid - 1),
        "another purchase": changed(TicketsBought, purchase=Hash32(bytes(32))),
        "refunded dear": changed(TicketRefunded, amount=10**15),
        "refunded early": [*events, replace(refund, ticket=SCHEDULER.address, meta=replace(refund.meta, block=90))],
        "an expired ticket": changed(TicketSpent, epoch=7),
        "another price": changed(TicketSpent, denomination=9),
    }
    for name, told in lies.items():
        found = [one for check in reports(refolded(reading, told), {}) for one in check.results]
        messages_ = [finding.message for result in found for finding in result.findings]
        assert any("do not fit together" in said for said in messages_), name


async def test_a_contract_that_lost_money_and_calls_that_show_other_tickets_are_named(stage: TicketsStage) -> None:
    reading = await looked(stage)
    honest = refolded(reading, list(reading.events))
    assert honest.holdings is not None
    honest.holdings -= 1
    assert "holds less" in reports(honest, {})[0].results[-1].findings[0].message
    honest.holdings += 1
    place = next(iter(honest.outstanding))
    honest.outstanding[place] += 1
    found = [finding for result in reports(honest, {})[0].results for finding in result.findings]
    assert [one.kind for one in found] == [FindingKind.MISMATCH]
    assert "is not what was sold" in found[0].message


async def test_forged_signatures_are_found_in_the_calls(stage: TicketsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls under another key than the epoch's members have: every spending is named, no refund."""
    reading = await looked(stage)
    market = await running.read_chain(stage.url, stage.market.place, start=0, last=None, whole=False)
    keys = reading.fold.keys[0]
    other = refolded(reading, list(reading.events))
    other.fold.keys[0] = (keys[1], keys[2], keys[0])

    async def told(*_: object, **__: object) -> TicketsReading:
        return other

    monkeypatch.setattr("troth.audit.tickets.read_tickets", told)
    report = await audit_tickets(stage.url, TicketsContract(stage.chain.contract), market.subject)
    said = [finding.message for finding in report.findings]
    assert said == ["Tickets were taken under a key that is not their epoch's"] * 3
    assert report.exit_code is ExitCode.VIOLATION


async def test_signatures_that_members_did_not_make_are_found_in_the_calls(stage: TicketsStage) -> None:
    """Two tickets of one call exchange their signatures: only the pairing can tell."""
    reading = await looked(stage)
    calls = await calls_of(stage.url, reading)
    spent = next(one for one in reading.events if isinstance(one, TicketSpent))
    sent = calls[spent.meta.transaction]
    call = calldata_of(sent)
    keys, (spending,) = values(call, "keys", TicketKey), values(call, "spendings", Spending)
    one, other = spending.tickets
    swapped = (replace(one, signature=other.signature), replace(other, signature=one.signature))
    made = messages.spend(keys, [replace(spending, tickets=swapped)])
    forged = {**calls, sent.hash: replace(sent, data=made.data)}
    found = [finding for result in reports(reading, forged)[1].results for finding in result.findings]
    assert [one.message for one in found] == ["Members did not sign a ticket that was spent"] * 2
    mine = [one for one in reading.events if isinstance(one, TicketSpent)]
    named = {one.ticket for one in mine if one.meta.transaction == sent.hash}
    assert {dict(one.evidence)["ticket"] for one in found} == named
    missing = {name: one for name, one in calls.items() if name != sent.hash}
    (open_,) = [finding for result in reports(reading, missing)[1].results for finding in result.findings]
    assert open_.kind is FindingKind.INCONCLUSIVE


def calldata_of(sent: Transaction) -> DecodedCall:
    """A call of the contract, as it was sent."""
    entry = functions_by_selector(TICKETS)[sent.data[:4]]
    return DecodedCall(entry, decode_parameters(entry.inputs, sent.data[4:]))


def test_nothing_follows_before_the_contract_said_that_it_stands() -> None:
    fold = TicketsFold()
    assert fold.held == 0
    with pytest.raises(InvalidField, match="has not said"):
        _ = fold.rules
