"""What an operator can withdraw, and what it is told where that is nothing: how much is bound, and until when."""

from __future__ import annotations

import pytest

from troth.chain.errors import NothingFree
from troth.chain.withdrawing import Withdrawable, gas_warning
from troth.protocol.amounts import COIN, Asset
from troth.protocol.types import Address

ETHER = 10**18


@pytest.mark.parametrize(("block", "amount"), [(99, 3), (100, 3), (101, 3 + ETHER)])
def test_stake_is_paid_after_the_exit_block_and_credit_always(block: int, amount: int) -> None:
    found = Withdrawable(credit=3, stake=ETHER, exit_block=100, block=block)
    assert found.amount == amount
    found.require_some(COIN, "troth node")
    told = found.told()
    assert int(told["bound_units"]) == 3 + ETHER - amount
    assert told["bound_until_block"] == (None if block > 100 else 100)


def test_what_open_cases_hold_keeps_no_credit_back() -> None:
    """The Registry frees no stake of which a case holds a part; asked for it, the chain refused credit, too."""
    found = Withdrawable(credit=3, stake=ETHER, exit_block=100, block=101, locked=1)
    assert not found.is_stake_free
    assert found.amount == 3
    found.require_some(COIN, "troth node")
    told = found.told()
    assert (told["bound_units"], told["locked_units"]) == (str(ETHER), "1")
    standing, todo = found.departure("troth node")
    assert "open cases hold part of it" in standing
    assert "Serve on until they are over" in todo
    with pytest.raises(NothingFree, match="of which open cases hold 1 wei"):
        Withdrawable(0, ETHER, 100, 101, 1).require_some(COIN, "troth node")


@pytest.mark.parametrize(
    ("stake", "exit_block", "said", "remedy"),
    [
        (ETHER, 100, "1 ether of stake, which is bound until block 100; it is block 40", "Repeat it after block 100"),
        (ETHER, 0, "1 ether of stake, which is bound until this operator leaves", "`troth node exit --broadcast`"),
        (0, 0, "no credit and no stake", "`troth node redeem --broadcast`"),
        (0, 30, "no credit and no stake", "`troth node redeem --broadcast`"),
    ],
)
def test_who_can_withdraw_nothing_is_told_what_is_bound(stake: int, exit_block: int, said: str, remedy: str) -> None:
    with pytest.raises(NothingFree) as caught:
        Withdrawable(credit=0, stake=stake, exit_block=exit_block, block=40).require_some(COIN, "troth node")
    assert said in str(caught.value)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("block", "stake", "said", "fix"),
    [
        (100, ETHER, "leaving; the stake is free after block 100, and it is 100", "Serve on until then"),
        (101, ETHER, "left; its stake is free since block 100", "Run `troth node withdraw --broadcast`."),
        (101, 0, "left, and its stake is withdrawn", "set up another with `troth node init --home FOLDER`"),
    ],
)
def test_who_has_left_is_not_told_to_serve_on(block: int, stake: int, said: str, fix: str) -> None:
    standing, todo = Withdrawable(0, stake, 100, block).departure("troth node")
    assert standing == said
    assert fix in todo
    assert ("Serve on" in todo) == (block == 100)


def test_a_redeemer_is_told_where_gas_costs_more_than_it_brings() -> None:
    told = {"maximum_gas_cost_wei": "102366564670"}
    (said,) = gas_warning(told, 58_593_750_000, COIN).values()
    assert said.startswith("gas may cost 102.36656467 gwei, more than the 58.59375 gwei that this brings")
    assert gas_warning(told, 102_366_564_670, COIN) == {}
    # What a token is worth in coins the chain does not say.
    assert gas_warning(told, 1, Asset(Address("0x" + "11" * 20), "usdc", 6)) == {}
