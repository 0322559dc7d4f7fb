"""A tab opened and closed with a browser's wallet: an injected provider over a real chain, in a real Chromium."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("playwright", reason="Playwright is not installed (make setup): pages are not looked at")

from playwright.sync_api import expect
from support.browser import CHROMIUM, WHY_NOT, Looked, chromium, looking
from support.tabs_stage import TabsStage, tabs_stage

from troth.chain.keystore import DEMO_SCRYPT_N
from troth.client.configuration import ClientConfiguration
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.tabs.managing import Purse, list_tabs, open_by_wallet, take_back, take_back_by_wallet

pytestmark = [
    *(pytest.mark.browser, pytest.mark.chain, pytest.mark.slow),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]

PROVIDER = """
window.ethereum = { request: async ({ method, params }) => {
  const said = await window.walletAnswers(method, params ?? []);
  if (said.error) throw Object.assign(new Error(said.error.message), { code: said.error.code });
  return said.result;
} };
"""


@dataclass
class BrowserWallet:
    """What an EIP-1193 provider answers, over the chain: the account's owner agrees, or declines."""

    stage: TabsStage
    account: str
    declines: int = 0
    chain: str = "0x7a69"
    sent: int = 0

    def answer(self, method: str, params: list[Any]) -> dict[str, Any]:
        rpc = self.stage.anvil.rpc
        if method == "eth_requestAccounts":
            return {"result": [self.account.lower()]}
        if method == "eth_chainId":
            return {"result": self.chain}
        if method == "wallet_switchEthereumChain":
            self.chain = params[0]["chainId"]
            return {"result": None}
        if method == "eth_sendTransaction":
            if self.declines:
                self.declines -= 1
                return {"error": {"code": 4001, "message": "User rejected the request."}}
            self.sent += 1
            rpc("anvil_impersonateAccount", self.account)
        return {"result": rpc(method, *params)}


@pytest.fixture
async def stage(anvil: Any) -> AsyncIterator[TabsStage]:
    async with tabs_stage(anvil, nodes=1, tabs=False) as made:
        yield made


@pytest.fixture
def purse(tmp_path: Path) -> Purse:
    password = tmp_path / "password"
    password.write_text("a password\n")
    password.chmod(0o600)
    return Purse(Home(tmp_path / "home"), password, DEMO_SCRYPT_N)


def configuration(stage: TabsStage) -> ClientConfiguration:
    place = stage.market.place
    return ClientConfiguration(MarketTable(place.factory, place.contracts.bank, 0), stage.anvil.url)


Command = Callable[[Callable[[str], None]], Awaitable[dict[str, Any]]]


async def signed(command: Command, wallet: BrowserWallet, seen: Callable[[Looked], None]) -> dict[str, Any]:
    """A command that waits for its page, and somebody at the browser; empty if it still waits for a signature."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(command(told.set_result))
    address = await asyncio.wait_for(told, 30)
    await asyncio.to_thread(at_browser, address, wallet, seen)
    if not wallet.sent:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {}
    return await asyncio.wait_for(running, 30)


def at_browser(address: str, wallet: BrowserWallet, seen: Callable[[Looked], None]) -> None:
    with chromium() as browser, looking(browser, address) as looked:
        looked.page.expose_function("walletAnswers", wallet.answer)
        looked.page.add_init_script(PROVIDER)
        looked.page.goto(address)
        looked.page.click("text=Connect your wallet")
        seen(looked)
        looked.require_clean()


def agree(looked: Looked) -> None:
    expect(looked.page.locator("#plan")).to_be_visible()
    looked.require_accessible()
    looked.page.click("#send")
    expect(looked.page.locator("#said")).to_contain_text("Done.", timeout=20_000)


async def test_a_browser_s_wallet_opens_and_closes_a_tab(stage: TabsStage, purse: Purse) -> None:
    told, payer = configuration(stage), stage.client.address
    wallet = BrowserWallet(stage, payer, declines=1, chain="0x1")

    def hesitate(looked: Looked) -> None:
        expect(looked.page.locator("#calls")).to_contain_text("openTab, with 0.01 ether, to 0x")
        looked.page.click("#send")
        expect(looked.page.locator("#said")).to_contain_text("You declined it in the wallet. Nothing was sent.")
        agree(looked)

    done = await signed(lambda tell: open_by_wallet(purse, told, "0.01ether", tell), wallet, hesitate)
    assert (done["from"], done["broadcast"], wallet.sent, wallet.chain) == (payer, True, 1, "0x7a69")
    (tab,) = await list_tabs(purse.home, told)
    assert (tab["known"], tab["payer"], tab["balance"]) == (True, payer, "0.01 ether")

    stranger = BrowserWallet(stage, stage.anvil.keys[5].address)

    def stopped(looked: Looked) -> None:
        expect(looked.page.locator("#said.bad")).to_contain_text("not the account that owns the tab")
        # The page answered with an error, which a browser tells on its console.
        looked.errors.clear()

    assert await signed(lambda tell: take_back_by_wallet(purse, told, tab["tab"], tell), stranger, stopped) == {}

    await signed(lambda tell: take_back_by_wallet(purse, told, tab["tab"], tell), wallet, agree)
    (closed,) = await list_tabs(purse.home, told)
    assert closed["closes_at"] > 0
    waits = await take_back_by_wallet(purse, told, tab["tab"], lambda _: pytest.fail("nothing is to be signed"))
    assert waits["step"] == "wait"
    stage.anvil.mine(closed["closes_at"])
    await signed(lambda tell: take_back_by_wallet(purse, told, tab["tab"], tell), wallet, agree)
    assert (await take_back(purse, told, tab["tab"]))[0]["step"] == "nothing"


async def test_no_other_page_reaches_it(stage: TabsStage, purse: Purse) -> None:
    """Neither without the secret path, nor by another name that leads here, nor from another page's origin."""
    told = configuration(stage)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(open_by_wallet(purse, told, "0.01ether", address.set_result))
    url = await asyncio.wait_for(address, 30)
    root = url[: url.index("/", 8)]
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(url)).status_code == 200
        assert (await client.get(f"{root}/")).status_code == 404
        assert (await client.get(f"{root}/guess/wish")).status_code == 404
        assert (await client.get(url, headers={"Host": "evil.example"})).status_code == 403
        for origin in ("https://evil.example", "null"):
            answer = await client.post(f"{url}plan", content=stage.client.address, headers={"Origin": origin})
            assert answer.status_code == 403
        assert (await client.post(f"{url}plan", content=b"\xff")).status_code == 409
        assert (await client.get(f"{url}../../etc/passwd")).status_code == 404
        assert not (await client.post(f"{url}state")).json()["done"]
        assert "default-src 'none'" in (await client.get(url)).headers["content-security-policy"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
