"""Tickets on a network of real processes: the play, and kill -9 of client, member and scheduler at each step.

Each process dies by SIGKILL between two given steps, is started again, and at the end every unit of money is accounted
for: by the client's file, by the contract, and by `troth audit tickets`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support import dying

from troth.demo import tickets_play
from troth.demo.tickets_play import PRICES, TicketBuyer, TicketsNetwork, spent_names
from troth.protocol.amounts import COIN
from troth.testnet import cli
from troth.testnet.anvil import rpc
from troth.testnet.display import Display
from troth.testnet.network import LAYERS
from troth.testnet.parties import NetworkPlan
from troth.testnet.processes import wait_until
from troth.testnet.weights import prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(3600)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
PRICE, CHEAP = (COIN.parse(one) for one in reversed(PRICES))
KILLED = -9
SECONDS = 300.0
EPOCH, MINED_AT_ONCE = 1_800, 50
SESSION, PAYMENTS = "troth.client.tickets.session", "troth.client.tickets.payments"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketsNetwork]:
    """One node is enough: nothing is asked, and the tabs are what is looked at."""
    plan = NetworkPlan(slices=((0, LAYERS),), nodes_per_slice=1, members=4, relays=0)
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("tickets") / "network"
    made = TicketsNetwork(folder, MODELS, plan, report=lambda line: None, ready_seconds=1200.0, epoch_blocks=EPOCH)
    with made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def buyer(network: TicketsNetwork) -> TicketBuyer:
    return TicketBuyer.of(network)


def killed(buyer: TicketBuyer, where: str, *arguments: object, after: bool = False, times: int = 1) -> None:
    """A command of the client that is killed at a place, and nothing else of it."""
    line = dying.command(where, "client", *arguments, "--home", buyer.home, "--json", after=after, times=times)
    done = cli.output_of(line, buyer.network.password_file)
    assert done.returncode == KILLED, (where, done.returncode, done.stdout, done.stderr)


def listed(buyer: TicketBuyer) -> Any:
    told = buyer.run("tickets", "list")
    return {row["price"]: row["spendable"] for row in told["tickets"]}, told


def audited(network: TicketsNetwork) -> None:
    done = cli.output_of(cli.command("audit", "tickets", "--network", network.file), network.password_file)
    assert done.returncode == 0, done.stdout + done.stderr


def transactions(buyer: TicketBuyer) -> int:
    return int(str(rpc(buyer.network.rpc, "eth_getTransactionCount", buyer.key.address, "latest")), 16)


def mine(network: TicketsNetwork, blocks: int) -> None:
    """Not all at once: a busy machine takes longer for many blocks than a call may last."""
    for begun in range(0, blocks, MINED_AT_ONCE):
        rpc(network.rpc, "anvil_mine", hex(min(MINED_AT_ONCE, blocks - begun)))


def test_a_client_that_is_killed_at_each_step_of_a_purchase_pays_once_and_gets_all(buyer: TicketBuyer) -> None:
    buy = ("tickets", "buy", PRICES[1], 3, "--broadcast")
    # Written down and not paid: nothing was bought.
    killed(buyer, f"{SESSION}:carry_out", *buy)
    assert transactions(buyer) == 0
    # Paid, and nobody has signed; members have signed, and it is not written.
    killed(buyer, f"{SESSION}:carry_out", *buy, after=True)
    mine(buyer.network, 2)  # members want one block after a purchase
    killed(buyer, "troth.client.tickets.store:TicketStore.add_tickets", "tickets", "collect")
    assert listed(buyer)[0]["0.001 ether"] == 0
    # Written, and not told.
    killed(buyer, "troth.client.tickets.store:TicketStore.add_tickets", "tickets", "collect", after=True)
    assert listed(buyer)[0]["0.001 ether"] == 3
    assert buyer.run("tickets", "collect")["signed"] == 0
    assert transactions(buyer) == 1
    assert buyer.network.shown()["tickets"][1]["outstanding"] == 3
    audited(buyer.network)


def test_a_client_that_is_killed_at_each_step_of_a_payment_spends_each_ticket_once(buyer: TicketBuyer) -> None:
    def open_(amount: str) -> tuple[object, ...]:
        return ("tickets", "open", amount)

    # A tab key, and no payment; a payment that was written and not sent; one that was taken and not written as taken.
    killed(buyer, "troth.client.tickets.store:TicketStore.add_payment", *open_("0.0009ether"))
    killed(buyer, f"{PAYMENTS}:TicketPayments._payment", *open_("0.0009ether"))
    assert buyer.run(*open_("0.0009ether"))["tickets"] == 1
    killed(buyer, "troth.client.tickets.store:TicketStore.finish_payment", *open_("0.0009ether"))
    assert buyer.network.shown()["tickets"][1]["outstanding"] == 1
    repeated = buyer.run(*open_("0.0009ether"))
    assert (repeated["tickets"], repeated["opened"]) == (1, True)
    assert len(set(spent_names(buyer))) == 2
    assert listed(buyer)[0]["0.001 ether"] == 1
    audited(buyer.network)


def test_a_scheduler_that_is_killed_before_and_after_it_redeems_loses_nobodys_ticket(buyer: TicketBuyer) -> None:
    network = buyer.network
    buyer.buy(PRICES[1], 2)
    place = "troth.scheduler.tabs.tickets:TicketDesk._spend"
    for after in (False, True):
        before = network.shown()["tickets"][1]["outstanding"]
        assert network.scheduler.child is not None
        network.scheduler.child.stop()
        line = dying.command(place, "scheduler", "start", "--home", network.scheduler.home, after=after)
        network.scheduler.child = network.processes.start("scheduler", line, cli.environment(network.password_file))
        network._wait_ready(network.scheduler)
        done = cli.output_of(
            cli.command("client", "tickets", "open", "0.0009ether", "--home", buyer.home, "--json"),
            network.password_file,
        )
        # It was sent: without a ticket that is signed, or without a scheduler, a command ends in another way.
        assert listed(buyer)[1]["payments_cut_off"] == 1, done.stdout + done.stderr
        assert done.returncode != 0, done.stdout
        child = network.scheduler.child
        wait_until(lambda child=child: not child.alive, "The scheduler's death", SECONDS)  # type: ignore[misc]
        assert child.process.returncode == KILLED
        assert network.shown()["tickets"][1]["outstanding"] == before - after
        network.start_scheduler()
        assert buyer.run("tickets", "open", "0.0009ether")["tickets"] == 1
        assert network.shown()["tickets"][1]["outstanding"] == before - 1
    audited(network)


def test_members_that_are_killed_while_they_sign_are_not_missed_and_sign_the_same_again(buyer: TicketBuyer) -> None:
    """Before a share is used, and after: one member dies, three of four are enough, and started again it signs."""
    network = buyer.network
    for number, after in ((0, False), (1, True)):
        member = network.members[number]
        assert member.child is not None
        member.child.stop()
        place = "troth.committee.tickets.service:TicketOffice.sign"
        network.start_member(member, dying.command(place, "committee", "start", "--home", member.home, after=after))
        network._wait_ready(member)
        bought = buyer.buy(PRICES[0], 2)
        assert bought["signed_nonsense"] == []
        child = member.child
        assert child is not None
        wait_until(lambda child=child: not child.alive, "The member's death", SECONDS)  # type: ignore[misc]
        assert child.process.returncode == KILLED
        network.start_member(member)
        network._wait_ready(member)
    # Now another is missing, so that the two that died are needed: they have their shares.
    last = network.members[3]
    assert last.child is not None
    last.child.stop(kill=True)
    assert buyer.buy(PRICES[0], 1)["signed"] == 1
    network.start_member(last)
    network._wait_ready(last)


def test_a_client_that_is_killed_at_each_step_of_change_gets_all_of_it(buyer: TicketBuyer) -> None:
    """Of a closing that was signed and not sent, sent and not heard; of a purchase likewise."""
    network, errand = buyer.network, f"{PAYMENTS}:TicketPayments._errand"
    buyer.buy(PRICES[1], 1)
    opened = buyer.run("tickets", "open", "0.0009ether")
    assert opened["opened"]
    before = sum(COIN.parse(price.replace(" ", "")) * count for price, count in listed(buyer)[0].items())
    killed(buyer, errand, "tickets", "change")
    killed(buyer, errand, "tickets", "change", after=True)
    steps = buyer.run("tickets", "change")
    assert {one["step"] for one in steps} <= {"closed", "wait"}
    while any(one["step"] == "closed" for one in steps):
        steps = buyer.run("tickets", "change")
    last = max(one["closes_at"] - one["block"] for one in steps)
    mine(network, max(last, 0) + 2)
    killed(buyer, errand, "tickets", "change")
    killed(buyer, errand, "tickets", "change", after=True)
    steps = buyer.run("tickets", "change")
    buyer.run("tickets", "collect")
    after = sum(COIN.parse(price.replace(" ", "")) * count for price, count in listed(buyer)[0].items())
    # Every tab came back: what is missing is fees, and what is less than the smallest ticket.
    assert after > before
    for one in steps:
        assert one["step"] in {"nothing", "bought"}
    audited(network)


def test_a_client_that_is_killed_while_it_is_refunded_is_paid_once(buyer: TicketBuyer) -> None:
    network, refund = buyer.network, ("tickets", "refund", "--broadcast")
    buyer.buy(PRICES[1], 1)
    assert buyer.run(*refund) == []
    mine(network, 2 * EPOCH)
    wait_until(lambda: network.shown()["epoch"] >= 2, "The epoch after the next", SECONDS)
    worth = COIN.parse("0.0001ether")
    held = int(str(rpc(network.rpc, "eth_getBalance", network.tickets, "latest")), 16)
    assert held >= worth
    killed(buyer, f"{SESSION}:carry_out", *refund)
    assert int(str(rpc(network.rpc, "eth_getBalance", network.tickets, "latest")), 16) == held
    killed(buyer, "troth.client.tickets.store:TicketStore.end", *refund)
    done = buyer.run(*refund)
    again = buyer.run(*refund)
    assert again == [], (done, again)
    # Nothing is left but what members signed for purchases of change, whose buyers are payers.
    audited(network)


def test_the_play_ends_and_says_what_it_promises(tmp_path: Path) -> None:
    said = io.StringIO()
    tickets_play.play(tmp_path, MODELS, Display(Console(file=said, width=200)))
    text = said.getvalue()
    assert "the only thing that the wallet ever signs" in text
    assert "the members' neither tab nor ticket" in text
    copied = re.search(r"all ([\d,]+) copied rows are on the chain", text)
    assert copied is not None
    assert int(copied[1].replace(",", "")) > 0
    assert "the wallet sent one transaction in all" in text
    assert "M25" in text
    assert re.search(r"^[1-9]\d* transactions?$", text, re.MULTILINE)
    assert "done in" in text
