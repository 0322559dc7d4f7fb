"""Tickets and organisations as an explorer shows them: sums that join nobody, deployments, and what is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.explorer_stage import home_of, reproduce
from support.market_logs import META, address
from support.market_record import PLACE
from support.market_scene import DOMAIN
from support.organisation_record import FIRST, HONEST, SECOND, SERVED, market, posted, reading

from troth.audit.checks import CREDITED, TICKETS_MONEY
from troth.audit.credits import examine
from troth.audit.report import CheckReport, CheckResult, FindingKind
from troth.audit.services import AuditedServices, ReadServices, standing
from troth.audit.tickets import money
from troth.chain.tickets import TicketsContract, TicketsReading
from troth.explorer.index import ExplorerIndex
from troth.explorer.reading import INDEX_FILE
from troth.explorer.site import Site
from troth.node.inspection.status import contribution_told
from troth.protocol.organisation_events import HostingBegun, OrganisationEvent
from troth.protocol.organisations import OrganisationsPlace
from troth.protocol.tickets.events import (
    KeysRegistered,
    SpendingPaid,
    TicketEvent,
    TicketsBought,
    TicketsDeployed,
    TicketSpent,
)
from troth.protocol.tickets.messages import TicketRules
from troth.protocol.tickets.purchases import Purchase
from troth.protocol.types import ZERO_HASH

PRICES = (10**12, 10**15)
WALLET, NAME, PAYER, PAYEE = address(81), address(82), address(83), address(84)
TERMS = Purchase(WALLET, 0, 1, 10, ZERO_HASH)


def sold() -> TicketsReading:
    """Ten tickets of the dearer price, of which one filled a tab."""
    deployed = TicketsDeployed(address(85), PLACE.contracts.bank, TicketRules(10_000, PRICES), 0, META)
    events: tuple[TicketEvent, ...] = (
        deployed,
        KeysRegistered(0, ZERO_HASH, (b"", b""), META),
        TicketsBought(TERMS.identifier, TERMS, 10 * PRICES[1], META),
        TicketSpent(NAME, PAYER, 0, 1, META),
        SpendingPaid(PAYER, PAYEE, address(86), PRICES[1] - 7, 7, True, META),
    )
    made = TicketsReading(TicketsContract(address(87)), DOMAIN, 2_000, events)
    for event in events:
        made.fold.take(event)
    made.outstanding, made.holdings = {(0, 1): 9}, 9 * PRICES[1]
    return made


def read(tickets: TicketsReading | None, *events: OrganisationEvent) -> ReadServices:
    """A look at both; no organisations without events."""
    hosted = reading(*events) if events else None
    reports = list[CheckReport]()
    if tickets is not None:
        reports.append(CheckReport(*TICKETS_MONEY, tuple(money(tickets))))
    if hosted is not None:
        found = (*examine(hosted), CheckResult(None, tuple(standing(hosted))))
        reports.append(CheckReport(*CREDITED, found))
    return ReadServices(tickets, hosted, tuple(reports))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ExplorerIndex]:
    home_of(tmp_path)
    made = ExplorerIndex.open(tmp_path / INDEX_FILE, DOMAIN.chain_id, PLACE)
    yield made
    made.close()


def shown(folder: Path, page: str = "services") -> str:
    site = Site.open(folder / INDEX_FILE)
    try:
        return site.page(page)
    finally:
        site.close()


@pytest.mark.slow
def test_sums_are_shown_and_nobody_who_bought_or_spent(index: ExplorerIndex, tmp_path: Path) -> None:
    assert "No ticket was sold here" in shown(tmp_path)
    index.served(read(sold(), *HONEST), reproduce)
    page = shown(tmp_path)
    assert "Contribution credits" in page
    assert "own/model" in page
    site = Site.open(tmp_path / INDEX_FILE)
    assert site.figure("tickets", {}).rows == ((0, str(PRICES[1]), 10, 1, 0, 9, str(9 * PRICES[1])),)
    assert site.figure("ticket-money", {}).rows == (
        (str(10 * PRICES[1]), str(PRICES[1] - 7), "7", "0", str(9 * PRICES[1]), 0),
    )
    deployment = site.figure("deployments", {}).rows[0]
    assert deployment[:2] == (1, market().owner_of(FIRST))
    earned = {row[0]: row[3] for row in site.figure("credits", {}).rows}
    assert earned == {market().owner_of(FIRST): str(2 * SERVED), market().owner_of(SECOND): str(SERVED)}
    everything = page + "".join(site.figure(name, {}).as_json() for name in ("tickets", "ticket-money"))
    for one in (WALLET, NAME, PAYER, PAYEE, "0x" + TERMS.identifier.hex()):
        assert one.lower() not in everything.lower()
    site.close()


@pytest.mark.slow
def test_a_later_look_replaces_and_what_is_wrong_turns_the_badge(index: ExplorerIndex, tmp_path: Path) -> None:
    lost = sold()
    assert lost.holdings is not None
    lost.holdings -= 1
    index.served(read(lost, *HONEST), reproduce)
    assert "1 findings" in shown(tmp_path, "audit") or "1 finding" in shown(tmp_path, "audit")
    index.served(read(sold(), *HONEST), reproduce)
    assert "0 findings" in shown(tmp_path, "audit")
    index.served(read(sold(), *HONEST[:2]), reproduce)
    site = Site.open(tmp_path / INDEX_FILE)
    assert site.figure("deployments", {}).rows == ()
    site.close()


def test_a_watcher_says_what_organisations_have_and_that_it_is_no_violation() -> None:
    running_ = HONEST[:5]
    found = list(standing(reading(*running_)))
    assert {one.kind for one in found} == {FindingKind.OBSERVED}
    first = next(one for one in found if one.message.startswith("Deployment 1"))
    assert first.party == market().owner_of(FIRST)
    assert dict(first.evidence)["set aside"] == str(SERVED)
    # What changes from epoch to epoch is beside the message, so that it is not news each time.
    more = list(standing(reading(*running_, posted(epoch=2, balance=2 * SERVED))))
    assert {one.message for one in more} == {one.message for one in found}


def test_what_is_found_is_shown_again_by_its_own_command() -> None:
    services = AuditedServices(
        "http://127.0.0.1:8545", TicketsContract(address(87)), OrganisationsPlace(address(88), 0)
    )
    (wrong,) = standing(reading(*HONEST[:2]))
    assert services.again(wrong, address(1)).startswith(f"troth audit credits {address(88)} --factory {address(1)}")


def test_node_status_says_what_a_node_earned_and_hosts() -> None:
    before = contribution_told(reading(*HONEST[:3]), FIRST)
    assert (before["owner"], before["owner_credits"]) == (market().owner_of(FIRST), str(2 * SERVED))
    assert before["hosts"] is None
    begun = HONEST[4]
    assert isinstance(begun, HostingBegun)
    hosting = contribution_told(reading(*HONEST[:5]), SECOND)
    # Its deployment is over by the block that is read: nothing is hosted any more.
    assert hosting["hosts"] is None
    long = HostingBegun(1, SECOND, begun.first_layer, begun.end_layer, 4, 9, begun.hosted, begun.meta)
    lasting = [*HONEST[:3], _until(9), long]
    told = contribution_told(reading(*lasting), SECOND)
    assert "deployment 1 of" in told["hosts"]
    assert "from epoch 4 until 9" in told["hosts"]
    assert contribution_told(reading(*lasting), FIRST)["owner_deployments"] == [1]


def _until(end: int) -> OrganisationEvent:
    made = HONEST[3]
    return replace(made, end=end)  # type: ignore[type-var]
