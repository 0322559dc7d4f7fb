"""Tabs on real contracts: opened, topped up, closed and taken back, in coin and token, by any wallet; summons."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode
from support import tabs_stage as module
from support.tabs_stage import PARAMETERS, TabsStage, tabs_stage

from troth.chain.deployment import deploy_market
from troth.chain.keystore import DEMO_SCRYPT_N, Key, create_account
from troth.chain.market_follower import MarketFollower
from troth.chain.tokens import allowance, approval, balance, read_asset
from troth.client.configuration import ClientConfiguration
from troth.client.errors import ReceiptNotFound, TransactionRefused, WalletError
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.orders.journal import OrderJournal, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.session import market_session
from troth.client.orders.summoning import AutomaticSummons
from troth.client.orders.terminal import summon
from troth.client.tabs.books import TabBooks
from troth.client.tabs.command import _listed, _told
from troth.client.tabs.errors import NoTab
from troth.client.tabs.keys import keyfile, master_of
from troth.client.tabs.managing import Purse, list_tabs, open_tab, take_back, top_up
from troth.client.tabs.store import opened
from troth.client.wallet import create_wallet
from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import lottery, messages
from troth.protocol.market.bodies import Admitted, Lottery, Results, Submission
from troth.protocol.market.calls import build, view
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import Fault
from troth.protocol.market.signed import Admission, Draw, Order, Result
from troth.protocol.market.tabs import first_voucher
from troth.protocol.market.types import Consent, PotKind, SchedulerRegistration, Tab, TabConsent, TabState
from troth.protocol.request import Request, canonical_bytes, request_hash
from troth.protocol.types import Address, Hash32, address_from_bytes, pack_ends, to_address
from troth.scheduler.ledger import MarketLedger

pytestmark = [pytest.mark.chain, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TOKENS = ROOT / "artifacts/contracts/test/market/support/BankMocks.sol"
ETHER = 10**18
PAYEE, OTHER_PAYEE = (address_from_bytes(bytes([byte]) * 20) for byte in (0x41, 0x42))


@asynccontextmanager
async def client(folder: Path, stage: TabsStage) -> AsyncIterator[tuple[Purse, ClientConfiguration]]:
    """A home whose wallet is the stage's client."""
    password = folder / "password"
    password.write_text("password\n")
    password.chmod(0o600)
    home = Home(folder / "home")
    imported = folder / "client.json"
    create_account(imported, "password", scrypt_n=DEMO_SCRYPT_N, key=stage.client)
    create_wallet(home, password, imported, DEMO_SCRYPT_N)
    place = stage.market.place
    table = MarketTable(place.factory, place.contracts.bank, place.block, reviewers=5, seats=1, outside=0)
    yield Purse(home, password, DEMO_SCRYPT_N), ClientConfiguration(table, stage.anvil.url)


def deploy(anvil: Any, name: str) -> Address:
    """A test token."""
    code = json.loads((TOKENS / f"{name}.json").read_text())["bytecode"]
    anvil.fund(anvil.keys[0])
    sender = anvil.keys[0].address
    anvil.rpc("anvil_impersonateAccount", sender)
    sent = anvil.rpc("eth_sendTransaction", {"from": sender, "data": code, "gas": hex(8_000_000)})
    anvil.rpc("anvil_stopImpersonatingAccount", sender)
    return to_address(receipt_of(anvil, sent)["contractAddress"])


def receipt_of(anvil: Any, sent: str) -> Any:
    """Of a transaction that is mined in a moment."""
    for _ in range(100):
        if (found := anvil.rpc("eth_getTransactionReceipt", sent)) is not None:
            return found
        time.sleep(0.02)
    raise AssertionError("not mined")


def send_from(anvil: Any, account: Address, calls: list[dict[str, str]]) -> None:
    """What another wallet does with printed calls."""
    anvil.rpc("anvil_setBalance", account, hex(100 * ETHER))
    anvil.rpc("anvil_impersonateAccount", account)
    for call in calls:
        fields = {"from": account, "to": call["to"], "value": hex(int(call["value"])), "data": call["data"]}
        sent = anvil.rpc("eth_sendTransaction", fields | {"gas": hex(1_000_000)})
        assert receipt_of(anvil, sent)["status"] == "0x1"
    anvil.rpc("anvil_stopImpersonatingAccount", account)


async def test_a_tab_in_coin_is_opened_topped_up_closed_and_taken_back(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, tabs=False) as stage, client(tmp_path, stage) as (purse, configuration):
        planned = await open_tab(purse, configuration, "0.5ether")
        assert (planned["transactions"], planned["calls"][0]["value"]) == ([], str(ETHER // 2))
        done = await open_tab(purse, configuration, "0.5ether", broadcast=True)
        # The dry run prepared the key; opening does not make another.
        assert (done["tab"], done["key"]) == (planned["tab"], planned["key"])
        await top_up(purse, configuration, "", "1ether", broadcast=True)
        (told,) = await list_tabs(purse.home, configuration)
        assert (told["balance"], told["free"], told["outstanding_units"]) == ("1.5 ether", "1.5 ether", "0")
        before = await stage.market.chain.balance(stage.client.address)
        (closed,) = await take_back(purse, configuration, broadcast=True)
        assert closed["step"] == "close"
        (waiting,) = await take_back(purse, configuration, broadcast=True)
        assert (waiting["step"], waiting["balance"]) == ("wait", closed["balance"])
        assert f"{closed['balance']}; what is left of it is free after the delay" in _told(closed)
        left = waiting["closes_at"] - waiting["block"]
        said = f"{waiting['balance']}, free from block {waiting['closes_at']} on, in {left} blocks: repeat it then"
        assert said in _told(waiting)
        anvil.mine(PARAMETERS.close_delay)
        (finished,) = await take_back(purse, configuration, told["scheduler"][:10], broadcast=True)
        assert finished["step"] == "finish"
        after = await stage.market.chain.balance(stage.client.address)
        assert ETHER < after - before <= 3 * ETHER // 2
        assert (await take_back(purse, configuration, broadcast=True))[0]["step"] == "nothing"


async def test_a_wallet_that_was_restored_on_another_machine_takes_its_tabs_back(anvil: Any, tmp_path: Path) -> None:
    """The tab's key is not there, so that nothing is ordered; the money is the wallet's all the same."""
    async with tabs_stage(anvil, tabs=False) as stage, client(tmp_path, stage) as (purse, configuration):
        done = await open_tab(purse, configuration, "0.5ether", broadcast=True)
        second = replace(purse, home=Home(tmp_path / "second"))
        assert await list_tabs(second.home, configuration) == [], "without a wallet there is nothing to look for"
        second.home.create()
        shutil.copy(purse.home.keystore, second.home.keystore)
        (told,) = await list_tabs(second.home, configuration)
        assert (told["tab"], told["balance"], told["elsewhere"]) == (done["tab"], "0.5 ether", True)
        assert f"another machine opened it with this wallet: `troth client close {done['tab'][:12]}" in _listed(told)
        # The other machine may use it.
        (named,) = await take_back(second, configuration, broadcast=True)
        assert named == {"tab": done["tab"], "step": "elsewhere"}
        assert "name it to close it" in _told(named)
        with pytest.raises(NoTab):
            await take_back(second, configuration, "0xffffff", broadcast=True)
        (closed,) = await take_back(second, configuration, done["tab"][:12], broadcast=True)
        assert closed["step"] == "close"
        anvil.mine(PARAMETERS.close_delay)
        assert (await take_back(second, configuration, done["tab"], broadcast=True))[0]["step"] == "finish"
        assert await list_tabs(second.home, configuration) == []


@pytest.mark.parametrize("token", ["GoodToken", "BadToken"])
async def test_a_tab_in_a_token_is_opened_by_permit_or_after_an_approval(
    token: str, anvil: Any, tmp_path: Path
) -> None:
    asset = deploy(anvil, token)
    parameters = replace(PARAMETERS, asset=asset)
    async with token_stage(anvil, asset, parameters) as stage, client(tmp_path, stage) as (purse, configuration):
        mint(anvil, asset, stage.client.address)
        done = await open_tab(purse, configuration, "500units", broadcast=True)
        names = [call["function"] for call in done["calls"]]
        assert names == (["openTabWithPermit"] if token == "GoodToken" else ["approve", "openTab"])
        topped = await top_up(purse, configuration, "", "70units", broadcast=True)
        assert [call["function"] for call in topped["calls"]] == ["approve", "topUp"]
        (told,) = await list_tabs(purse.home, configuration)
        assert told["balance_units"] == "570"
        dry = await top_up(purse, configuration, "", "9units")
        assert ([call["function"] for call in dry["calls"]], dry["transactions"]) == (["approve", "topUp"], [])
        assert all(call["data"].startswith("0x") for call in dry["calls"])
        await take_back(purse, configuration, broadcast=True)
        anvil.mine(PARAMETERS.close_delay)
        held = await read_asset(stage.market, asset)
        before = await balance(stage.market, held, stage.client.address)
        await take_back(purse, configuration, broadcast=True)
        assert await balance(stage.market, held, stage.client.address) - before == 570


@pytest.mark.parametrize("token", ["GoodToken", "BadToken"])
async def test_deposits_of_one_wallet_at_once_take_no_approval_of_one_another(
    token: str, anvil: Any, tmp_path: Path
) -> None:
    """Three copies of a home open their tabs, each a program that knows nothing of the others; then three programs of
    one home add to one tab, beside what waits for a case of that home."""
    asset = deploy(anvil, token)
    async with (
        token_stage(anvil, asset, replace(PARAMETERS, asset=asset)) as stage,
        client(tmp_path, stage) as (purse, configuration),
    ):
        mint(anvil, asset, stage.client.address)
        homes = [purse.home, Home(tmp_path / "second"), Home(tmp_path / "third")]
        for home in homes[1:]:
            home.create()
            shutil.copy(purse.home.keystore, home.keystore)
        opened = [open_tab(replace(purse, home=home), configuration, "500units", broadcast=True) for home in homes]
        await asyncio.gather(*opened)
        for home in homes:
            told = [one for one in await list_tabs(home, configuration) if not one.get("elsewhere")]
            assert [one["balance_units"] for one in told] == ["500"]
        for left in (0, 1_000):
            await stage.market.execute(approval(stage.market, asset, left), stage.client)
        await asyncio.gather(*(top_up(purse, configuration, "", "70units", broadcast=True) for _ in range(3)))
        (told,) = [one for one in await list_tabs(purse.home, configuration) if not one.get("elsewhere")]
        assert told["balance_units"] == "710"
        assert await allowance(stage.market, asset, stage.client.address) == 1_000


async def test_a_scheduler_opens_its_tabs_with_nodes_in_a_token(anvil: Any) -> None:
    """Nobody approves by hand: deposits side by side each get their own approval."""
    asset = deploy(anvil, "GoodToken")
    async with token_stage(anvil, asset, replace(PARAMETERS, asset=asset)) as stage:
        mint(anvil, asset, stage.scheduler.address)
        anvil.fund(stage.scheduler)
        async with MarketFollower(stage.market, poll_interval=0.05) as follower:
            await follower.catch_up()
            ledger = MarketLedger(stage.market, follower, stage.scheduler)
            tabs = [Tab(stage.scheduler.address, node, stage.scheduler.address) for node in (PAYEE, OTHER_PAYEE)]

            async def opened(tab: Tab) -> None:
                consent = sign(TabConsent(tab.payer, tab.payee), stage.market.domain, stage.scheduler.secret)
                arguments = (tab.payee, tab.key, 700, consent.signature)
                await ledger.execute(build(stage.market.contracts, Part.BANK, "openTab", *arguments), 700)

            await asyncio.gather(*(opened(tab) for tab in tabs))
            found = [follower.state.tab_state(tab_id(tab)) for tab in tabs]
            assert [one.balance for one in found] == [700, 700]
            assert await allowance(stage.market, asset, stage.scheduler.address) == 0


def mint(anvil: Any, token: Address, account: Address) -> None:
    data = keccak256(b"mint(address,uint256)")[:4] + encode(["address", "uint256"], [account, 10**24])
    send_from(anvil, address_from_bytes(b"\x31" * 20), [{"to": token, "value": "0", "data": "0x" + data.hex()}])


@asynccontextmanager
async def token_stage(anvil: Any, asset: Address, parameters: Any) -> AsyncIterator[TabsStage]:
    """A deployment whose asset is a token, with a scheduler alone."""
    anvil.mine(3)
    market, _ = await deploy_market(anvil.url, parameters, anvil.keys[0])
    async with market:
        stage = TabsStage(
            anvil,
            market,
            module.MODEL,
            module.execution_class_of(),
            (),
            Key.from_secret(keccak256(b"scheduler")),
            keccak256(b"vrf"),
            anvil.keys[1],
            Key.from_secret(keccak256(b"tab")),
        )
        owner, stake = stage.owner_of(stage.scheduler), parameters.scheduler_stake
        mint(anvil, asset, owner.address)
        approve = keccak256(b"approve(address,uint256)")[:4]
        approve += encode(["address", "uint256"], [market.contracts.bank, 2**255])
        send_from(anvil, owner.address, [{"to": asset, "value": "0", "data": "0x" + approve.hex()}])
        x, y = vrf.public_key(stage.vrf_secret)
        registration = SchedulerRegistration(
            stage.scheduler.address, module.NO_ADDRESS, x, y, stake, *module.nowhere(stage.scheduler.address)
        )
        consent = sign(Consent(owner.address, stage.scheduler.address), market.domain, stage.scheduler.secret)
        await stage.send(owner, Part.REGISTRY, "registerScheduler", registration, consent.signature)
        yield stage


async def test_any_wallet_sends_the_printed_calls_a_smart_account_too(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, tabs=False) as stage, client(tmp_path, stage) as (purse, configuration):
        # An account with code stands for a smart account: the consent is the tab key's, never the owner's.
        smart = stage.market.contracts.lens
        planned = await open_tab(purse, configuration, "0.1ether", payer=smart)
        # It holds nothing yet: the chain would refuse, and the calls are shown all the same.
        assert (planned["from"], "refused" in planned) == (smart, True)
        with pytest.raises(TransactionRefused, match="would refuse openTab"):
            await open_tab(purse, configuration, "100000000ether", broadcast=True)
        with pytest.raises(WalletError, match="not the account"):
            await open_tab(purse, configuration, "0.1ether", payer=smart, broadcast=True)
        send_from(anvil, smart, planned["calls"])
        told = (await list_tabs(purse.home, configuration))[0]
        assert (told["payer"], told["balance"]) == (smart, "0.1 ether")


async def test_money_in_an_older_deployment_comes_back_by_the_same_command(anvil: Any, tmp_path: Path) -> None:
    async with tabs_stage(anvil, tabs=False) as old, client(tmp_path, old) as (purse, before):
        await open_tab(purse, before, "0.2ether", broadcast=True)
        async with tabs_stage(anvil, tabs=False) as new:
            place = new.market.place
            table = MarketTable(place.factory, place.contracts.bank, place.block, seats=1, outside=0)
            now = ClientConfiguration(table, anvil.url)
            await open_tab(purse, now, "0.3ether", broadcast=True)
            assert [one["step"] for one in await take_back(purse, now, broadcast=True)] == ["close", "close"]
            anvil.mine(PARAMETERS.close_delay)
            assert [one["step"] for one in await take_back(purse, now, broadcast=True)] == ["finish", "finish"]


# ------------------------------------------------------------------------------------------------------------- summons


def order_on(stage: TabsStage, key: Key, block: int) -> tuple[Order, Request, lottery.Secrets, Hash32]:
    request = Request(stage.class_id, (1, 2, 3), 4, 0, 1_000_000, (5,))
    salt = Hash32(b"\x5a" * 32)
    hashed = request_hash(request, salt)
    tab = messages.tab_id(stage.client_tab)
    made = lottery.secrets_for(master_of(key), tab, 1, hashed)
    order = Order(
        tab=tab,
        sequence=1,
        execution_class=stage.class_id,
        request_hash=hashed,
        ends=pack_ends((2,)),
        prompt_price=10**9,
        cached_price=10**8,
        written_price=2 * 10**9,
        node_share=8_000,
        max_fee=1_000,
        check_rate=1_000_000,
        deadline=int(time.time()) + 3_600,
        reference_block=block,
        draw_hash=made.draw_hash,
        tiles_hash=made.tiles_hash,
        reply_key=Hash32(b"\x25" * 32),
    )
    return order, request, made, salt


async def admitted(stage: TabsStage, purse: Purse, *, drawn: bool) -> Hash32:
    """An order on the stage's tab in the client's journal: admitted, and with ``drawn`` answered and drawn over."""
    domain, market = stage.market.domain, stage.market
    block = await market.chain.block_number()
    order, request, secrets, salt = order_on(stage, stage.tab_key, block - 2)
    identifier = messages.order_id(order, domain)
    node = stage.nodes[0]
    named = Admission(identifier, messages.nodes_hash([node.address]), block - 1)
    words = Admitted(sign(named, domain, stage.scheduler.secret), (node.address,), b"")
    voucher = sign(replace(first_voucher(order.tab), authorised=1_000, sequence=1), domain, stage.tab_key.secret)
    signed = sign(order, domain, stage.tab_key.secret)
    submission = Submission(signed, stage.client_tab, voucher, canonical_bytes(request), salt)
    with opened(purse.home.tabs) as store:
        books, journal = TabBooks(store), OrderJournal(store)
        bank, factory = market.contracts.bank, market.place.factory
        books.add(stage.client_tab, chain_id=domain.chain_id, bank=bank, factory=factory)
        state = await market.read(_state_of(stage, order.tab))
        books.order(
            order.tab,
            1_000,
            state,
            stage.tab_key,
            lambda _n, _v: journal.ordered(identifier, submission, question="", mode="lot"),
        )
        journal.step(identifier, Phase.ADMITTED, admitted=words)
        if drawn:
            zero = Hash32(bytes(32))
            result = Result(identifier, 0, order.request_hash, Hash32(b"\1" * 32), 3, 0, 2, Hash32(b"\2" * 32), zero)
            proof = vrf.prove(stage.vrf_secret, messages.draw_alpha(identifier))
            beta = Hash32(vrf.proof_to_hash(proof))
            draw = Draw(identifier, messages.results_hash([result]), beta, block)
            journal.step(
                identifier,
                Phase.REFUSED_CHECK,
                results=Results("end", (sign(result, domain, node.secret),)),
                lottery=Lottery(sign(draw, domain, stage.scheduler.secret), proof),
                secret=bytes(secrets.draw),
            )
        journal.release(identifier)
    return identifier


def _state_of(stage: TabsStage, tab: Hash32) -> Any:
    return view(stage.market.contracts, Part.BANK, "tabOf", tab, returns=TabState)


@pytest.mark.parametrize("drawn", [False, True])
async def test_results_and_checks_that_do_not_come_are_summoned_by_one_command(
    drawn: bool, anvil: Any, tmp_path: Path
) -> None:
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        identifier = await admitted(stage, purse, drawn=drawn)
        if not drawn:
            anvil.mine(PARAMETERS.summons_window)
        name = "0x" + identifier.hex()[:12]
        planned = await summon(purse, configuration, name, broadcast=False)
        assert planned["kind"] == ("check" if drawn else "results")
        assert planned["gas"] > 0
        done = await summon(purse, configuration, name, broadcast=True)
        assert len(done["transactions"]) == 1
        with pytest.raises(ReceiptNotFound, match="Nothing of this order"):
            await summon(purse, configuration, name, broadcast=False)


@pytest.mark.parametrize("most", [1, 10**17])
async def test_a_client_that_was_told_so_summons_by_itself_up_to_its_limit(
    most: int, anvil: Any, tmp_path: Path
) -> None:
    async with tabs_stage(anvil) as stage, client(tmp_path, stage) as (purse, configuration):
        identifier = await admitted(stage, purse, drawn=True)
        create_account(
            keyfile(purse.home, stage.tab_key.address), "password", scrypt_n=DEMO_SCRYPT_N, key=stage.tab_key
        )
        heard: list[str] = []
        async with market_session(purse.home, configuration, "password") as session:
            asset = await read_asset(stage.market, PARAMETERS.asset)
            keeper = OrderKeeper(
                session, AutomaticSummons(stage.market, asset, stage.client, most), lambda _e, line: heard.append(line)
            )
            await keeper.once()
            await session.follower.catch_up()
            await keeper.once()
            summoned = list(heard)
            anvil.mine(PARAMETERS.summons_window + 1)
            for _ in range(2):
                await session.follower.catch_up()
                await keeper.once()
            await session.follower.catch_up()
            convicted = session.state.convictions.get(stage.scheduler.address, ())
            credit = session.state.pot(PotKind.CREDIT, stage.client.address)
        # Nobody answered: who summoned convicts, once, and is paid for it.
        assert [one.fault for one in convicted] == ([] if most == 1 else [Fault.UNANSWERED])
        assert len(heard) == len(summoned) + len(convicted)
        assert (credit > stage.execution_class.penalty // 10) == (most != 1)
        heard = summoned
        assert len(heard) == 1
        assert ("not summoned" if most == 1 else "summoned check on chain: 0x") in heard[0]
        assert identifier
