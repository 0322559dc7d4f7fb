"""What a command sends: nothing without ``--broadcast``, and then no key is opened either."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from troth.chain import sending
from troth.chain.errors import ChainRejected
from troth.chain.records import TransactionReceipt
from troth.chain.sending import DRY_RUN, TransactionSender, carry_out, carry_out_all, send_or_show
from troth.protocol.types import Address, Hash32

SENDER, CONTRACT = Address("0x" + "11" * 20), Address("0x" + "22" * 20)


def call(function: str) -> Any:
    return SimpleNamespace(call=SimpleNamespace(function=function, value=7), to=CONTRACT)


class Chain:
    """A market that takes every call but those that it refuses."""

    def __init__(self, *refused: str) -> None:
        self.sent: list[str] = []
        self._refused = refused

    async def simulate(self, wanted: Any, sender: Address) -> Any:
        assert sender == SENDER
        refused = wanted.call.function in self._refused
        rejection = SimpleNamespace(name="Refused", remedy="Wait.", arguments=()) if refused else None
        return SimpleNamespace(rejection=rejection, gas=100, maximum_cost=1_000)

    async def execute(self, wanted: Any, key: Any) -> Any:
        assert key == "the key"
        self.sent.append(wanted.call.function)
        return SimpleNamespace(transaction=bytes([3]) * 32, block=5, gas_used=90)


class Keyfile:
    """Counts how often it is opened."""

    opened = 0

    def open(self) -> Any:
        self.opened += 1
        return "the key"


@pytest.fixture
def keyfile() -> Keyfile:
    return Keyfile()


async def test_a_dry_run_opens_no_key_and_stops_at_the_first_call(keyfile: Keyfile) -> None:
    chain: Any = Chain("second")
    told = await carry_out_all(
        chain, [call("first"), call("second")], TransactionSender(SENDER, keyfile.open), broadcast=False
    )
    assert told == [
        {
            **{"function": "first", "contract": CONTRACT, "from": SENDER, "value_wei": "7", "gas": 100},
            **{"maximum_gas_cost_wei": "1000", "sent": False, "note": DRY_RUN},
        },
        {"function": "second", "sent": False},
    ]
    assert (keyfile.opened, chain.sent) == (0, [])


async def test_what_is_sent_is_told_with_its_transaction(keyfile: Keyfile) -> None:
    chain: Any = Chain()
    told = await carry_out_all(
        chain, [call("first"), call("second")], TransactionSender(SENDER, keyfile.open), broadcast=True
    )
    assert chain.sent == [one["function"] for one in told] == ["first", "second"]
    assert [(one["sent"], one["block"], one["gas"]) for one in told] == [(True, 5, 90)] * 2
    assert told[0]["transaction"] == "0x" + "03" * 32
    assert "note" not in told[0]


@pytest.mark.parametrize("broadcast", [False, True])
async def test_what_the_contract_refuses_is_sent_by_nobody(keyfile: Keyfile, broadcast: bool) -> None:
    chain: Any = Chain("first")
    with pytest.raises(ChainRejected):
        await carry_out(chain, call("first"), TransactionSender(SENDER, keyfile.open), broadcast=broadcast)
    assert (keyfile.opened, chain.sent) == (0, [])


async def test_a_creation_names_what_it_made(keyfile: Keyfile, monkeypatch: pytest.MonkeyPatch) -> None:
    receipt = TransactionReceipt(Hash32(bytes([3]) * 32), 5, Hash32(bytes(32)), 90, 1, CONTRACT)
    simulation = SimpleNamespace(gas=100, maximum_cost=1_000)

    async def estimate(*_: Any) -> Any:
        return simulation

    async def submit(*_: Any) -> Any:
        return receipt

    monkeypatch.setattr(sending, "estimate", estimate)
    monkeypatch.setattr(sending, "submit", submit)
    creation: Any = SimpleNamespace(function="constructor")

    async def told(broadcast: bool) -> dict[str, Any]:
        sender = TransactionSender(SENDER, keyfile.open)
        return await send_or_show("", creation, None, sender, {"a": 1}, broadcast=broadcast, creates="reputation")

    dry, done = await told(False), await told(True)
    assert dry["note"] == DRY_RUN
    assert "reputation" not in dry
    assert (done["reputation"], done["start_block"], done["a"], keyfile.opened) == (CONTRACT, 5, 1, 1)
    receipt = replace(receipt, created=None)
    assert "start_block" not in await told(True)
