"""Claims of what is not owed, on a real chain: a client's own process objects, and its payee loses the claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from integration.test_tabs_on_chain import admitted, client
from support.client_network import ClientSide, Network, client_side, network
from support.tabs_stage import DEPOSIT, PARAMETERS, TabsStage, tabs_stage

from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.chain.tokens import read_asset
from troth.client.errors import ReceiptNotFound
from troth.client.home import Home
from troth.client.orders.journal import OrderJournal, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.objecting import Objector
from troth.client.orders.session import market_session
from troth.client.orders.summoning import AutomaticSummons
from troth.client.orders.terminal import object_to
from troth.client.tabs.books import TabBooks
from troth.client.tabs.keys import keyfile
from troth.client.tabs.store import opened
from troth.protocol.market import claims, tabs
from troth.protocol.market.messages import Signed, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.types import PotKind, Tab, Voucher
from troth.protocol.types import Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

GAS = 10**15


async def claimed(stage: TabsStage, tab: Tab, word: Signed[Voucher], amounts: Mapping[int, int]) -> None:
    """The scheduler claims, whatever is owed."""
    claim, _ = claims.claim_of(word.message, amounts)
    await stage.send(stage.scheduler, Part.BANK, "claim", tab, word.message, word.signature, claim)


async def eventually(scene: Network, condition: Callable[[], object], what: str) -> None:
    for _ in range(600):
        await scene.ledger.catch_up()
        if condition():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what} did not come true")


def first_word(journal: OrderJournal) -> Signed[Voucher]:
    """The oldest word on a tab: it came with the first order."""
    submission = min(journal.all(), key=lambda one: one.sequence).submission
    assert submission is not None
    return submission.voucher


def first_word_of(home: Path) -> Signed[Voucher]:
    with opened(Home(home).tabs) as store:
        return first_word(OrderJournal(store))


# ---------------------------------------------------------------------------------------------------- whole processes


async def heard(stream: asyncio.StreamReader | None, word: bytes) -> bytes:
    """What a process says up to a word, which comes a moment after the chain has what it tells of."""
    assert stream is not None
    said = b""
    async with asyncio.timeout(60):
        while word not in said:
            line = await stream.readline()
            assert line, said
            said += line
    return said


async def test_a_payee_that_claims_what_was_refunded_loses_the_claim(anvil: Any, tmp_path: Path) -> None:
    """The whole way by the client's own programs: an order that fails, one that is paid, a claim, a gateway."""
    async with network(anvil, tmp_path / "network") as scene:
        side = await client_side(scene, tmp_path / "client")
        for node in scene.nodes.values():
            node.faults.dies_at_position = 0
        # Dearer than what is paid below: owed is the largest sum that was ever shown.
        assert (await side.run("ask", "word9 word10", "--max-tokens", "40", "--check", "always")).code == 1
        for node in scene.nodes.values():
            node.faults.dies_at_position = None
        assert (await side.run("ask", "word9 word10", "--max-tokens", "4", "--check", "always")).code == 0
        spent, credit = side.book.spent, credit_of(scene)
        assert spent > 0
        old = first_word_of(side.home)
        assert (old.message.sequence, old.message.spent) == (1, 0)
        tab = tab_of(side)
        await claimed(scene.stage, tab, old, {1: old.message.authorised})
        serving = await side.start("serve", "--port", 0)
        try:
            await eventually(scene, lambda: objections(scene, side.tab), "an objection")
            # Nobody can show an answer that was never made.
            await scene.pass_by(PARAMETERS.answer_window + 1)
            await eventually(scene, lambda: scene.ledger.state.tabs[side.tab].claim is None, "the strike")
            said = await heard(serving.stderr, b"struck")
        finally:
            serving.terminate()
            await serving.communicate()
        assert b"more than is known to be owed" in said
        assert credit_of(scene) == credit
        with opened(Home(side.home).tabs) as store:
            assert "it claims" in TabBooks(store).record(side.tab).doubt


async def test_what_is_owed_is_claimed_and_paid_while_a_client_looks_on(anvil: Any, tmp_path: Path) -> None:
    async with network(anvil, tmp_path / "network") as scene:
        side = await client_side(scene, tmp_path / "client")
        assert (await side.run("ask", "word9 word10", "--max-tokens", "4", "--check", "1%")).code == 0
        with opened(Home(side.home).tabs) as store:
            (entry,) = OrderJournal(store).all()
        word = first_word_of(side.home)
        await claimed(scene.stage, tab_of(side), word, {1: entry.fee or 0})
        looked = await side.run("ask", "word9 word10", "--max-tokens", "4", "--check", "always")
        assert looked.code == 0
        assert "claim" not in looked.err
        assert not objections(scene, side.tab)


def credit_of(scene: Network) -> int:
    return scene.ledger.state.pot(PotKind.CREDIT, scene.stage.scheduler.address)


def tab_of(side: ClientSide) -> Tab:
    with opened(Home(side.home).tabs) as store:
        return TabBooks(store).record(side.tab).tab


def objections(scene: Network, tab: Hash32) -> int:
    claim = scene.ledger.state.tabs[tab].claim
    return 0 if claim is None else len(claim.objections)


# ----------------------------------------------------------------------------------------------------------- one client


async def test_a_check_that_was_refused_is_not_paid_by_a_claim(anvil: Any, tmp_path: Path) -> None:
    """Refused, summoned in vain, and claimed all the same: the chain voided the leaf, and the claim is struck."""
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        identifier = await admitted(stage, purse, drawn=True)
        keep_tab_key(stage, purse.home)
        heard: list[str] = []
        async with market_session(purse.home, configuration, "password") as session:
            asset = await read_asset(stage.market, PARAMETERS.asset)
            summons = AutomaticSummons(stage.market, asset, stage.client, 10**17)
            objector = Objector(stage.market, asset, GAS, lambda: stage.client)
            keeper = OrderKeeper(session, summons, lambda _e, line: heard.append(line), objector)
            session.journal.step(identifier, fee=900)
            await keeper.once()
            anvil.mine(PARAMETERS.summons_window + 1)
            word = first_word(session.journal)
            await claimed(stage, stage.client_tab, word, {1: 900})
            for _ in range(3):
                await session.follower.catch_up()
                await keeper.once()
            await session.follower.catch_up()
            tab = session.books.all()[0].identifier
            convicted = session.state.convictions.get(stage.scheduler.address, ())
            assert [one.fault for one in convicted] == [Fault.UNANSWERED]
            record = session.state.tabs[tab]
            assert record.claim is not None
            assert list(record.claim.objections) == [1]
            anvil.mine(PARAMETERS.answer_window + 1)
            await session.follower.catch_up()
            await keeper.once()
            await session.follower.catch_up()
            assert session.state.tabs[tab].claim is None
            assert session.state.tab_state(tab).balance == DEPOSIT
            (struck,) = [line for line in heard if "struck" in line]
            assert struck


@pytest.mark.parametrize("coins", [True, False])
async def test_without_the_wallet_the_tab_key_objects_or_the_command_is_told(
    coins: bool, anvil: Any, tmp_path: Path
) -> None:
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        await admitted(stage, purse, drawn=False)
        keep_tab_key(stage, purse.home)
        anvil.rpc("anvil_setBalance", stage.tab_key.address, hex(10**18 if coins else 0))
        async with market_session(purse.home, configuration, "password") as session:
            (record,) = session.books.all()
            (entry,) = session.journal.all()
            session.journal.step(entry.identifier, Phase.FAILED)
            word = first_word(session.journal)
            await claimed(stage, stage.client_tab, word, {1: 1_000})
            await session.follower.catch_up()
            asset = await read_asset(stage.market, PARAMETERS.asset)
            (line,) = await Objector(stage.market, asset, GAS).look(session, record)
            await session.follower.catch_up()
            asked = session.state.tabs[record.identifier].claim
            assert asked is not None
            assert [one.objector for one in asked.objections.values()] == [stage.tab_key.address] * coins
            assert ("troth client object 0x" in line) != coins
        if not coins:
            name = "0x" + record.identifier.hex()[:10]
            planned = await object_to(purse, configuration, name, broadcast=False)
            assert (planned["from"], planned["numbers"], planned["transactions"]) == (stage.client.address, [1], [])
            done = await object_to(purse, configuration, name, broadcast=True)
            assert len(done["transactions"]) == 1
            with pytest.raises(ReceiptNotFound, match="nothing to object to"):
                await object_to(purse, configuration, name, broadcast=False)


async def test_no_more_gas_is_spent_than_was_allowed_and_than_is_at_stake(anvil: Any, tmp_path: Path) -> None:
    """What a payee can show costs its payer the gas of asking: it is asked for once, whatever is claimed beside it."""
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        await admitted(stage, purse, drawn=False)
        keep_tab_key(stage, purse.home)
        async with market_session(purse.home, configuration, "password") as session:
            (record,) = session.books.all()
            (entry,) = session.journal.all()
            session.journal.step(entry.identifier, Phase.FAILED)
            book = session.books.record(record.identifier).book
            state = session.state.tab_state(record.identifier)
            for _ in range(2):
                book, _number = tabs.order_next(book, 1_000, state)
            word = signed(stage, book.voucher)
            await claimed(stage, stage.client_tab, word, {1: 900, 2: 900, 3: 900})
            await session.follower.catch_up()
            anvil.mine((PARAMETERS.claim_delay - PARAMETERS.answer_window) // 2 + 1)
            await session.follower.catch_up()
            asset = await read_asset(stage.market, PARAMETERS.asset)
            (line,) = await Objector(stage.market, asset, 1, lambda: stage.client).look(session, record)
            assert "[market] objections allows 1 wei" in line
            objector = Objector(stage.market, asset, GAS, lambda: stage.client)
            (line,) = await objector.look(session, record)
            assert "is asked for by 0x" in line
            await session.follower.catch_up()
            (line,) = await objector.look(session, record)
            assert "more than that" in line


def signed(stage: TabsStage, voucher: Voucher) -> Signed[Voucher]:
    return sign(voucher, stage.market.domain, stage.tab_key.secret)


def keep_tab_key(stage: TabsStage, home: Home) -> None:
    create_account(keyfile(home, stage.tab_key.address), "password", scrypt_n=DEMO_SCRYPT_N, key=stage.tab_key)
