"""What a scheduler that is not there was sent: nothing, and the client says so."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from troth.chain.errors import WrongChain
from troth.chain.records import Simulation
from troth.client.errors import OverlayFailed, SchedulerUnreachable, TransactionRefused, WrongSchedulerKey
from troth.client.https_calls import ORDER_REMEDY, UNSENT_REMEDY, Calls, never_sent, openly, unreachable
from troth.client.tabs.opening import OpeningCalls, carry_out
from troth.overlay.paths.errors import NoCircuits
from troth.overlay.sessions.asking import without_path
from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.protocol.contract_errors import ContractError
from troth.protocol.types import Address, Hash32, to_address
from troth.testnet.ports import free_port
from troth.transport.errors import CircuitFailed


@dataclass(frozen=True)
class Stopped:
    """A scheduler that is registered and does not run."""

    endpoint: str
    operator: Address
    tls_key_hash: Hash32


async def test_a_stopped_scheduler_was_never_sent_the_order() -> None:
    stopped = Stopped(f"https://127.0.0.1:{free_port()}", to_address("0x" + "11" * 20), Hash32(bytes(32)))
    async with openly(stopped) as calls:
        with pytest.raises(SchedulerUnreachable) as caught:
            async with aclosing(calls.lines("POST", "/v1/orders", b"{}")) as lines:
                await anext(lines)
    assert never_sent(caught.value)
    assert caught.value.remedy == UNSENT_REMEDY
    assert "may have arrived" not in str(caught.value)


async def test_an_order_whose_answer_broke_off_may_have_arrived() -> None:
    def broken(_request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset by peer")

    async with httpx.AsyncClient(transport=httpx.MockTransport(broken), base_url="https://s.example") as client:
        with pytest.raises(SchedulerUnreachable) as caught:
            await anext(Calls(client, "https://s.example").lines("POST", "/v1/orders", b"{}"))
    assert not never_sent(caught.value)
    assert caught.value.remedy == ORDER_REMEDY


@pytest.mark.parametrize(
    ("error", "unsent"),
    [
        (WrongSchedulerKey("another key", "x", ""), True),
        (OverlayFailed("lost", "x", "", hop="path", delivered="no"), True),
        (OverlayFailed("lost", "x", "", hop="proxy", delivered="unknown"), False),
        (OverlayFailed("lost", "x", "", hop="destination", delivered="yes"), False),
        (SchedulerUnreachable("away", "x", ""), False),
    ],
)
def test_only_what_is_certain_counts_as_unsent(error: Exception, unsent: bool) -> None:
    assert never_sent(error) is unsent


@dataclass
class Refusing:
    """A chain that takes so many calls and refuses the next."""

    takes: int
    sent: int = 0
    refusal: str = "TabOpen"
    chain: Any = None

    async def simulate(self, call: Any, sender: Address) -> Simulation:
        refused = self.sent >= self.takes
        rejection = ContractError(self.refusal, {}, "Top it up instead.") if refused else None
        return Simulation("openTab", sender, 0, 1, 1, rejection)

    async def execute(self, call: Any, key: Any) -> Any:
        self.sent += 1
        return SimpleNamespace(transaction=bytes(32), block=7)


@pytest.mark.parametrize(("takes", "said"), [(0, "Nothing was sent. Top"), (1, "what comes before it was. Top")])
async def test_a_refused_opening_says_once_what_was_sent(takes: int, said: str) -> None:
    call: Any = SimpleNamespace(call=SimpleNamespace(function="openTab", value=0, data=b""), to="0x")
    plan = OpeningCalls(to_address("0x" + "11" * 20), (call, call))
    chain: Any = Refusing(takes)
    with pytest.raises(TransactionRefused) as caught:
        await carry_out(chain, plan, object(), broadcast=True)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert str(caught.value).count("sent") == 1


@pytest.mark.parametrize("broadcast", [True, False])
async def test_a_node_that_names_another_chain_than_its_contracts_see_is_said(broadcast: bool) -> None:
    """They refuse the consent, which is signed for the chain that the node names."""

    async def seen() -> int:
        return 31337

    call: Any = SimpleNamespace(call=SimpleNamespace(function="openTab", value=0, data=b""), to="0x")
    plan = OpeningCalls(to_address("0x" + "11" * 20), (call,))
    node = SimpleNamespace(chain_id=77, counted_chain=seen, place="http://node")
    refusing: Any = Refusing(0, refusal="InvalidTabConsent", chain=node)
    with pytest.raises(WrongChain, match="is on chain 77, and contracts there see chain 31337") as caught:
        await carry_out(refusing, plan, None, broadcast=broadcast)
    assert "node of chain 31337" in caught.value.remedy
    node.chain_id = 31337
    if broadcast:
        with pytest.raises(TransactionRefused, match="InvalidTabConsent"):
            await carry_out(refusing, plan, None, broadcast=True)
    else:
        assert (await carry_out(refusing, plan, None, broadcast=False))["refused"].startswith("InvalidTabConsent")


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (None, "The path of the circuit failed: 0 of 1 circuits were there: the proxy was silent"),
        (CircuitFailed("proxy", 3, "silent"), "The path of the circuit failed: 0 of 1 circuits were there: the proxy"),
        (CircuitFailed("destination", 0, "it is unreachable"), "The destination of the circuit failed: it is unreach"),
    ],
)
def test_what_failed_on_the_way_is_said_once_with_its_cause(before: CircuitFailed | None, said: str) -> None:
    found = without_path(before, NoCircuits("0 of 1 circuits were there", "the proxy was silent", "Try again later."))
    with pytest.raises(OverlayFailed) as failed, unreachable(ORDER_REMEDY):
        raise RequestFailed(found, Delivered.NO)
    assert failed.value.what.startswith(said)
    assert str(failed.value).count(found.reason) == 1
    assert failed.value.remedy == "Nothing was sent: ask again, it is free."
