"""`troth client tickets` as a user runs it: bought, signed by real members, spent at a real scheduler, asked with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from support.client_network import ClientSide, Network, client_side, configuration, network, toy_answer
from support.ticket_members import MembersStage, members_stage

from troth.chain.adapter import Chain
from troth.chain.deployment import submit
from troth.chain.keystore import Key
from troth.client.configuration import save
from troth.client.errors import SchedulerRefused, TicketsUnusable
from troth.client.home import Home
from troth.client.tabs.managing import Purse
from troth.client.tabs.store import opened
from troth.client.tickets import managing, session
from troth.client.tickets.payments import TicketPayments
from troth.client.tickets.session import ticket_session
from troth.client.tickets.store import TicketStore
from troth.protocol.market.calls import build
from troth.protocol.market.messages import sign
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Tab, TabConsent
from troth.protocol.tickets import messages
from troth.protocol.tickets.messages import LostTicket, PayerCall, PayerOrder, TicketPayment
from troth.protocol.tickets.purchases import Purchase
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32
from troth.scheduler.errors import TicketsNotTaken
from troth.scheduler.orders.http import ticket_routes
from troth.scheduler.tabs.tickets import TicketDesk, TicketTerms
from troth.transport.identity import Operator

pytestmark = [
    pytest.mark.chain,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
PRICES = (10**13, 10**14, 10**15)
FEE = 10**11
EPOCH = 400
QUESTION = "word7 word9 word11"


@dataclass
class TicketNetwork:
    """A scheduler that takes tickets, the members that sign them, and a client with a wallet."""

    scene: Network
    stage: MembersStage
    desk: TicketDesk

    async def client(self, folder: Path) -> ClientSide:
        """A wallet with configuration, and no tab but by tickets."""
        side = await client_side(self.scene, folder, deposit=1)
        with opened(Home(folder).tabs) as store:
            store.execute("DELETE FROM tabs")
        named = msgspec.structs.replace(configuration(self.scene.stage), tickets=self.stage.chain.contract)
        save(Home(folder).configuration, named)
        return side


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def tickets(anvil: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TicketNetwork]:
    folder = tmp_path_factory.mktemp("tickets")
    async with network(anvil, folder) as scene:
        bank = scene.stage.market.contracts.bank
        async with members_stage(anvil, bank, folder, prices=PRICES) as stage:
            await stage.keys()
            operator = Operator(scene.stage.scheduler.secret, scene.stage.market.domain)
            async with await Chain.connect(anvil.url, stage.chain.contract) as chain:
                desk = TicketDesk(TicketTerms(stage.chain.contract, FEE), chain, scene.ledger, operator)
                scene.app.include_router(ticket_routes(desk))
                yield TicketNetwork(scene, stage, desk)


async def test_from_the_wallet_to_an_answer_that_nothing_joins_to_it(tickets: TicketNetwork, tmp_path: Path) -> None:
    side = await tickets.client(tmp_path / "home")
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    dry = await managing.buy(purse, named, "100000gwei", 4)
    assert not dry["broadcast"]
    bought = await side.run("tickets", "buy", "100000gwei", 4, "--broadcast", "--json")
    assert bought.code == 0, bought.err
    assert (bought.json["signed"], bought.json["waiting"], bought.json["signed_nonsense"]) == (4, [], [])
    listed = await managing.list_tickets(purse, named)
    assert [row["spendable"] for row in listed["tickets"]] == [0, 4, 0]

    made = await side.run("tickets", "open", "250000gwei", "--json")
    assert made.code == 0, made.err
    assert made.json["tickets"] == 3
    side.tab = Hash32(bytes.fromhex(made.json["tab"][2:]))
    await tickets.scene.ledger.catch_up()
    assert side.state.balance == 3 * (PRICES[1] - FEE)
    asked = await side.run("ask", QUESTION, "--max-tokens", 4, "--check", "always", "--json")
    assert asked.code == 0, asked.err
    assert (asked.json["answer"], asked.json["outcome"]) == (toy_answer(QUESTION, 4), "checked")
    assert side.book.spent == int(asked.json["cost_units"]) > 0

    (order,) = side.orders
    wallet = side.key.address.lower().removeprefix("0x")
    kept = b"".join(one.read_bytes() for one in tickets.scene.folder.glob("market.sqlite*"))
    assert bytes.fromhex(wallet) not in kept
    assert wallet.encode() not in kept.lower()
    assert order.admitted.order.message.tab == side.tab
    listed = await managing.list_tickets(purse, named)
    assert [row["spendable"] for row in listed["tickets"]] == [0, 1, 0]


async def test_what_a_scheduler_refuses(
    tickets: TicketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays, tickets for another, without the fee, under another key, forged ones that cancel, from another epoch."""
    side = await tickets.client(tmp_path / "home")
    scene, desk = tickets.scene, tickets.desk
    purse = Purse(Home(side.home), side.password_file, 1 << 10)
    await managing.buy(purse, configuration_of(tickets), "10000gwei", 3, broadcast=True)
    async with ticket_session(purse, configuration_of(tickets)) as session:
        payment = await prepared(session, tickets)
        spending = payment.spending
        key, first = payment.keys[0], spending.tickets[0]
        swapped = (replace(first, signature=spending.tickets[1].signature), *spending.tickets[1:])
        wrong = {
            "another scheduler": replace(payment, spending=replace(spending, payee=side.key.address)),
            "pays": replace(payment, spending=replace(spending, fee=FEE - 1)),
            "worth": replace(payment, spending=replace(spending, fee=PRICES[0] + 1)),
            "did not sign": replace(payment, spending=replace(spending, tickets=swapped)),
            "comes twice": replace(payment, spending=replace(spending, tickets=(first, first))),
            "consent": replace(payment, spending=replace(spending, consent=bytes(65))),
            "not the epoch's key": replace(payment, keys=(replace(key, denomination=1),)),
            "are taken": replace(payment, keys=(replace(key, epoch=7),)),
            "1 to 64": replace(payment, spending=replace(spending, tickets=())),
        }
        for said, one in wrong.items():
            with pytest.raises(TicketsNotTaken, match=said):
                await desk.pay(one)
        # A client that leaves while its tickets wait for a block, and comes back with them again and again.
        asked, may_spend, spend = asyncio.Event(), asyncio.Event(), desk._spend

        async def waiting(together: Any) -> None:
            asked.set()
            await may_spend.wait()
            await spend(together)

        monkeypatch.setattr(desk, "_spend", waiting)
        first_asked = asyncio.create_task(desk.pay(payment))
        await asked.wait()
        first_asked.cancel()
        for _ in range(2):
            with pytest.raises(TicketsNotTaken, match="being spent now"):
                await asyncio.wait_for(desk.pay(payment), 20)
        may_spend.set()
        assert desk._carrying is not None
        await desk._carrying
        assert not desk._under_way
        with pytest.raises(TicketsNotTaken, match="spent already"):
            await desk.pay(payment)
        payer = await session.chain.read(messages.payer_of(spending.tab_key))
        assert await session.chain.balance(payer) == 0
        await scene.ledger.catch_up()


async def test_change_comes_back_as_smaller_tickets(tickets: TicketNetwork, tmp_path: Path) -> None:
    """A tab is closed by its key's word, and its rest buys tickets; the wallet signs nothing of it."""
    side = await tickets.client(tmp_path / "home")
    scene, anvil = tickets.scene, tickets.scene.stage.anvil
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    await managing.buy(purse, named, "1000000gwei", 1, broadcast=True)
    await managing.open_tab(purse, named, "900000gwei")
    (closed,) = await managing.change(purse, named)
    assert closed["step"] == "closed"
    (waiting,) = await managing.change(purse, named)
    assert waiting["step"] == "wait"
    anvil.mine(max(0, waiting["closes_at"] - waiting["block"]))
    await scene.ledger.catch_up()
    sent = await scene.stage.market.chain.transactions_sent(side.key.address)
    (bought,) = await managing.change(purse, named)
    # 10^15 less four fees: nine of 10^14 and nine of 10^13; the rest is the carrier's.
    assert (bought["step"], bought["signed"]) == ("bought", 18)
    assert await scene.stage.market.chain.transactions_sent(side.key.address) == sent
    listed = await managing.list_tickets(purse, named)
    assert [row["spendable"] for row in listed["tickets"]] == [9, 9, 0]
    store = TicketStore(Home(side.home).tickets, tickets.stage.chain.domain)
    payer = store.payments()[0].payer
    store.close()
    assert await scene.stage.market.chain.balance(payer) == 0


async def test_a_payment_that_somebody_brings_to_the_chain_without_its_consent_is_not_lost(
    tickets: TicketNetwork, tmp_path: Path
) -> None:
    """Whoever sees it in the pool sends it first, with another consent: the tab stays shut, the payer has the money."""
    side = await tickets.client(tmp_path / "home")
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    await managing.buy(purse, named, "100000gwei", 3, broadcast=True)
    stranger = tickets.scene.stage.anvil.keys[5]
    async with ticket_session(purse, named) as session:
        payment = await prepared(session, tickets)
        stolen = replace(payment.spending, consent=bytes(65))
        call = messages.spend(list(payment.keys), [stolen])
        await submit(tickets.scene.stage.anvil.url, call, stranger, tickets.stage.chain.contract)
        before = await session.chain.balance(stranger.address)
        payer = session.store.payments()[-1].payer
        assert await session.chain.balance(payer) == 3 * (PRICES[1] - FEE)
    opened_ = await managing.open_tab(purse, named, "250000gwei")
    assert (opened_["tickets"], opened_["opened"]) == (3, False)
    await tickets.scene.ledger.catch_up()
    (bought,) = await managing.change(purse, named)
    # Three tickets less five fees: two of the same price, and nine smaller ones.
    assert (bought["step"], bought["signed"]) == ("bought", 11)
    assert await tickets.stage.chain.balance(payer) == 0
    assert await tickets.stage.chain.balance(stranger.address) <= before


async def test_a_scheduler_carries_no_word_that_could_cost_it_more_than_its_fee(
    tickets: TicketNetwork, tmp_path: Path
) -> None:
    """A payer that calls a contract of its owner's, or spends a hundred tickets, would burn the carrier's gas."""
    side = await tickets.client(tmp_path / "home")
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    contracts, me = tickets.scene.stage.market.contracts, tickets.scene.stage.scheduler.address
    await managing.buy(purse, named, "10000gwei", 1, broadcast=True)
    await managing.open_tab(purse, named, "1000gwei")
    async with ticket_session(purse, named) as session:
        payer = session.store.payments()[-1].payer
        tab_key = session.purse.keyring().key(session.store.payments()[-1].tab_key)
        other = build(contracts, Part.BANK, "finishClosing", Tab(payer, me, tab_key.address)).call.data
        wrong = {
            "not carried": [
                PayerCall(side.key.address, 0, b""),
                PayerCall(contracts.registry, 0, other),
                PayerCall(contracts.bank, 0, build(contracts, Part.BANK, "redeemMany", [], [], []).call.data),
                PayerCall(tickets.stage.chain.contract, 0, messages.spend([], []).data),
                PayerCall(contracts.bank, 0, other + bytes(401)),
                PayerCall(contracts.bank, 0, b""),
                PayerCall(tickets.stage.chain.contract, 0, refund_of(17)),
            ],
            "At most 8": [
                PayerCall(contracts.bank, 0, other),
                PayerCall(tickets.stage.chain.contract, 0, refund_of(2)),
            ],
        }
        sent = await session.chain.transactions_sent(me)
        domain = Domain(session.chain.chain_id, payer)
        for said, calls in wrong.items():
            for call in calls:
                fee = 100 * FEE if said == "not carried" else FEE - 1 + FEE * (call.target != contracts.bank)
                signed = messages.errand(PayerOrder((call,), fee, 0, 10**9), domain, tab_key.secret)
                with pytest.raises(TicketsNotTaken, match=said):
                    await tickets.desk.carry(signed)
        two = PayerOrder((PayerCall(contracts.bank, 0, other),) * 2, 2 * FEE - 1, 0, 10**9)
        with pytest.raises(TicketsNotTaken, match=f"these for {2 * FEE}"):
            await tickets.desk.carry(messages.errand(two, domain, tab_key.secret))
        # Where no ticket was spent there is no payer: a call does nothing, and whoever carries it pays for that.
        stranger = session.purse.keyring().create(1 << 10)
        nobody = await session.chain.read(messages.payer_of(stranger.address))
        close = build(contracts, Part.BANK, "close", Tab(nobody, me, stranger.address)).call.data
        order = PayerOrder((PayerCall(contracts.bank, 0, close),), 0, 0, 10**9)
        signed = messages.errand(order, Domain(session.chain.chain_id, nobody), stranger.secret)
        with pytest.raises(TicketsNotTaken, match="nobody would hear its word"):
            await tickets.desk.carry(signed)
        assert await session.chain.transactions_sent(me) == sent


def refund_of(count: int) -> bytes:
    """A call that refunds so many tickets of a purchase of 256."""
    root, proof = Hash32(bytes(32)), (Hash32(bytes(32)),) * 8
    purchase = Purchase(Key.generate().address, 0, 0, 256, root)
    lost = [LostTicket(purchase.buyer, place, 1, proof) for place in range(count)]
    return messages.refund(purchase, lost).data


async def test_a_scheduler_that_lies_about_change_gets_no_more_than_its_fee(
    tickets: TicketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wants nearly all as a fee; it says that it refused, and has the purchase mined."""
    side = await tickets.client(tmp_path / "home")
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    scene, desk = tickets.scene, tickets.desk
    await managing.buy(purse, named, "1000000gwei", 1, broadcast=True)
    await managing.open_tab(purse, named, "900000gwei")
    (closed,) = await managing.change(purse, named)
    (waiting,) = await managing.change(purse, named)
    assert (closed["step"], waiting["step"]) == ("closed", "wait")
    scene.stage.anvil.mine(max(0, waiting["closes_at"] - waiting["block"]))
    await scene.ledger.catch_up()
    monkeypatch.setattr(desk, "terms", TicketTerms(tickets.stage.chain.contract, -FEE))
    with pytest.raises(TicketsUnusable, match="wants"):
        await managing.change(purse, named)
    for most in (PRICES[2] // 7, 9 * PRICES[1]):
        monkeypatch.setattr(desk, "terms", TicketTerms(tickets.stage.chain.contract, most))
        (nothing,) = await managing.change(purse, named)
        assert nothing["step"] == "nothing"
    monkeypatch.setattr(desk, "terms", TicketTerms(tickets.stage.chain.contract, FEE))
    carry = desk.carry

    async def lying(errand: Any) -> int:
        await carry(errand)
        raise TicketsNotTaken("I carried nothing", None, "Ask again.")

    monkeypatch.setattr(desk, "carry", lying)
    with pytest.raises(SchedulerRefused, match="I carried nothing"):
        await managing.change(purse, named)
    monkeypatch.setattr(desk, "carry", carry)
    collected = await managing.collect(purse, named)
    assert (collected["signed"], collected["unpaid"]) == (18, 0)


async def test_who_buys_waits_for_members_that_want_blocks_after_it(
    tickets: TicketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, asked, plain = await tickets.client(tmp_path / "home"), count(), session.signed_tickets
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)

    async def later(*given: Any) -> Any:
        if next(asked) < 2:
            raise TicketsUnusable("0 members signed, 3 are needed", None, "Ask again.")
        return await plain(*given)

    monkeypatch.setattr(session, "signed_tickets", later)
    monkeypatch.setattr(session, "ASKED_EVERY", 0.01)
    bought = await managing.buy(purse, named, "100000gwei", 2, broadcast=True)
    assert (bought["signed"], bought["waiting"]) == (2, [])
    monkeypatch.setattr(session, "SIGNING_SECONDS", 0.0)
    asked = count()
    bought = await managing.buy(purse, named, "100000gwei", 1, broadcast=True)
    assert bought["signed"] == 0
    assert "0 members signed" in bought["waiting"][0]
    collected = [(await managing.collect(purse, named))["signed"] for _ in range(2)]
    assert collected == [0, 1]


async def test_a_payment_that_was_cut_off_is_finished_word_for_word(tickets: TicketNetwork, tmp_path: Path) -> None:
    """Killed after it was written and before it was sent; and killed after the chain took it, before it was heard."""
    side = await tickets.client(tmp_path / "home")
    purse, named = Purse(Home(side.home), side.password_file, 1 << 10), configuration_of(tickets)
    await managing.buy(purse, named, "10000gwei", 2, broadcast=True)
    for sent in (False, True):
        async with ticket_session(purse, configuration_of(tickets)) as session:
            payment = await prepared(session, tickets, 1)
            if sent:
                await tickets.desk.pay(payment)
            assert [one.done for one in session.store.payments()][-1] is False
        done = await managing.open_tab(purse, named, "1000gwei")
        assert done["tickets"] == 1
    with_store = TicketStore(Home(side.home).tickets, tickets.stage.chain.domain)
    assert [one.ended for one in with_store.tickets()] == ["spent", "spent"]
    with_store.close()


async def test_change_that_was_lost_comes_back_to_its_payer_and_not_by_the_wallet(
    tickets: TicketNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refund that the wallet sends for a payer's purchase would join the two, and with them every order of that tab.

    With members and a contract of its own, whose epochs are short: the scheduler knew other keys of the first ones, as
    after a reorganisation.
    """
    side = await tickets.client(tmp_path / "home")
    purse, scene, desk = Purse(Home(side.home), side.password_file, 1 << 10), tickets.scene, tickets.desk
    anvil, bank = scene.stage.anvil, scene.stage.market.contracts.bank
    await managing.buy(purse, configuration_of(tickets), "100000gwei", 1, broadcast=True)
    await managing.open_tab(purse, configuration_of(tickets), "90000gwei")
    async with members_stage(anvil, bank, tmp_path, prices=PRICES, epoch_blocks=EPOCH) as stage:
        await stage.keys()
        contract = stage.chain.contract
        monkeypatch.setattr(desk, "terms", TicketTerms(contract, FEE))
        monkeypatch.setattr(desk, "chain", stage.chain)
        named = msgspec.structs.replace(configuration_of(tickets), tickets=contract)
        await managing.buy(purse, named, "100000gwei", 2, broadcast=True)
        await managing.open_tab(purse, named, "90000gwei")
        (closed,) = await managing.change(purse, named)
        assert closed["step"] == "closed"
        (waiting,) = await managing.change(purse, named)
        anvil.mine(max(0, waiting["closes_at"] - waiting["block"]))
        await scene.ledger.catch_up()
        await stage.keys(await stage.chain.read(messages.epoch_now()))
        (bought,) = await managing.change(purse, named)
        assert (bought["step"], bought["signed"]) == ("bought", 9)
        anvil.mine(3 * EPOCH)
        await scene.ledger.catch_up()
        async with ticket_session(purse, named) as session:
            payer = session.store.payments()[-1].payer
            held = await session.chain.balance(contract)
            (refunded,) = await session.refund(broadcast=True)
            assert (refunded["tickets"], await session.chain.balance(contract)) == (1, held - PRICES[1])
            assert await session.refund(broadcast=True) == []
            sent = await session.chain.transactions_sent(side.key.address)
            (back,) = await managing.change(purse, named)
            assert (back["step"], back["tickets"]) == ("refunded", 9)
            assert await session.chain.balance(payer) == 9 * (PRICES[0] - FEE)
            await stage.keys(await session.chain.read(messages.epoch_now()))
            (again,) = await managing.change(purse, named)
            assert (again["step"], again["signed"]) == ("bought", 8)
            assert await session.chain.transactions_sent(side.key.address) == sent


async def prepared(session: Any, tickets: TicketNetwork, count: int = 3) -> TicketPayment:
    """Tickets signed over to the scheduler and written down, as `open` does before it sends them."""
    keyring = session.purse.keyring()
    tab_key = keyring.create(1 << 10)
    payee = tickets.scene.stage.scheduler.address
    payer = await session.chain.read(messages.payer_of(tab_key.address))
    free = [one for one in session.store.tickets() if not one.ended][:count]
    with session.store.writing():
        session.store.add_payment(payer, payee, tab_key.address, FEE, [one.name for one in free])
    payment = session.store.payments()[-1]
    mine = [one for one in session.store.tickets() if one.payment == payment.identifier]
    made: TicketPayment = await TicketPayments(session)._payment(payment, mine)
    assert made.spending.consent == sign(TabConsent(payer, payee), session.market.domain, tab_key.secret).signature
    return made


def configuration_of(tickets: TicketNetwork) -> Any:
    return msgspec.structs.replace(configuration(tickets.scene.stage), tickets=tickets.stage.chain.contract)
