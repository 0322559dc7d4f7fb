"""A client's deposits in a token beside those of other programs with its wallet."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from unit.test_chain_tokens import OWNER, TOKEN, BusyToken, amount_of

from troth.chain.errors import ChainRejected, ChainUnavailable
from troth.chain.market import Market
from troth.chain.tokens import UNLIMITED, approvals_beside
from troth.client.errors import TransactionRefused
from troth.client.tabs import opening
from troth.client.tabs.opening import ROUNDS, OpeningCalls, approved, carry_out
from troth.protocol.calls import Call
from troth.protocol.contract_errors import ContractError
from troth.protocol.market.calls import PartCall

DEPOSIT = PartCall(OWNER, Call("topUp", b""))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "PAUSE", 0.0)


class SharedToken(BusyToken):
    """Another program with the wallet takes the first so many approvals away; ``closed``: no deposit is taken."""

    def __init__(self, allowed: int, taken_away: int = 0, *, closed: bool = False) -> None:
        super().__init__(allowed)
        self.taken_away = taken_away
        self.closed = closed
        self.approved: list[int] = []

    async def simulate(self, call: Any, _sender: Any) -> Any:
        refused = call is DEPOSIT and (self.closed or self.allowed < 70)
        rejection = SimpleNamespace(name="No", remedy="") if refused else None
        return SimpleNamespace(rejection=rejection, gas=1, maximum_cost=1)

    async def execute(self, call: Any, _key: Any) -> Any:
        if call is DEPOSIT:
            self.allowed -= 70
            self.taken.append(70)
        else:
            self.approved.append(amount_of(call))
            self.allowed = self.approved[-1]
            if self.taken_away:
                self.taken_away -= 1
                self.allowed = 0
        return SimpleNamespace(transaction=b"\x01" * 32, block=7)


async def deposited(token: SharedToken) -> None:
    market = cast(Market, token)
    plan = await approved(market, TOKEN, 70, OpeningCalls(OWNER, (DEPOSIT,)))
    await carry_out(market, plan, cast(Any, SimpleNamespace(address=OWNER)), broadcast=True)


async def test_what_was_approved_for_other_calls_stays() -> None:
    token = SharedToken(1_000)
    await deposited(token)
    assert (token.taken, token.allowed) == ([70], 1_000)


@pytest.mark.parametrize("taken_away", range(1, ROUNDS))
async def test_an_approval_that_another_program_took_is_made_again(taken_away: int) -> None:
    token = SharedToken(0, taken_away)
    await deposited(token)
    assert (token.taken, token.allowed, token.approved) == ([70], 0, [70] * (1 + taken_away))


async def test_another_program_may_have_approved_again_before_anybody_looks() -> None:
    """Then what is there is its own, and this call gets one beside it."""

    class Crowded(SharedToken):
        async def simulate(self, call: Any, sender: Any) -> Any:
            found = await super().simulate(call, sender)
            if found.rejection is not None:
                self.allowed = 70
            return found

    token = Crowded(0, 1)
    await deposited(token)
    assert (token.taken, token.approved, token.allowed) == ([70], [70, 140], 70)


async def test_that_has_an_end() -> None:
    token = SharedToken(0, 99)
    with pytest.raises(TransactionRefused, match="topUp"):
        await deposited(token)
    assert token.approved == [70] * ROUNDS


async def test_what_is_refused_for_another_reason_is_not_approved_again() -> None:
    token = SharedToken(0, closed=True)
    with pytest.raises(TransactionRefused, match="topUp"):
        await deposited(token)
    assert token.approved == [70]


async def test_a_permit_that_is_not_the_reason_is_not_made_again_and_again() -> None:
    """Too few tokens, say: the allowance is none before and after, since the permit's call takes it."""
    token, plans = SharedToken(0, closed=True), list[int]()

    async def plan() -> OpeningCalls:
        plans.append(len(plans))
        return OpeningCalls(OWNER, (DEPOSIT,))

    market = cast(Market, token)
    made = await opening.repeatable(market, TOKEN, 70, plan)
    with pytest.raises(TransactionRefused, match="topUp"):
        await carry_out(market, made, cast(Any, SimpleNamespace(address=OWNER)), broadcast=True)
    assert len(plans) == 1 + opening.PERMITS


async def test_a_permit_whose_number_another_program_took_is_made_again() -> None:
    token, plans = SharedToken(70), list[int]()
    token.closed = True

    async def plan() -> OpeningCalls:
        plans.append(len(plans))
        token.closed = len(plans) < 1 + opening.PERMITS
        return OpeningCalls(OWNER, (DEPOSIT,))

    async def allowance_is_none(*_: object) -> int:
        return 0

    market = cast(Market, token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "allowance", allowance_is_none)
        made = await opening.repeatable(market, TOKEN, 70, plan)
        await carry_out(market, made, cast(Any, SimpleNamespace(address=OWNER)), broadcast=True)
    assert token.taken == [70]


async def test_a_chain_that_goes_away_hides_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> int:
        raise ChainUnavailable("The chain node does not answer", "x")

    token = SharedToken(0, closed=True)
    plan = await approved(cast(Market, token), TOKEN, 70, OpeningCalls(OWNER, (DEPOSIT,)))
    monkeypatch.setattr(opening, "allowance", away)
    with pytest.raises(TransactionRefused, match="topUp"):
        await carry_out(cast(Market, token), plan, cast(Any, SimpleNamespace(address=OWNER)), broadcast=True)


@pytest.mark.parametrize("is_once", [False, True])
async def test_a_deposit_that_was_sent_is_sent_again_only_where_the_chain_takes_it_once(is_once: bool) -> None:
    """A chain node that lags says of a mined transaction that it failed."""

    class Lagging(SharedToken):
        async def execute(self, call: Any, key: Any) -> Any:
            done = await super().execute(call, key)
            if call is DEPOSIT and len(self.taken) == 1:
                raise ChainRejected("topUp", ContractError("ERC20InsufficientAllowance", {}, "Approve it."))
            return done

    token = Lagging(0)
    plan = replace(await approved(cast(Market, token), TOKEN, 70, OpeningCalls(OWNER, (DEPOSIT,))), is_once=is_once)
    carried = carry_out(cast(Market, token), plan, cast(Any, SimpleNamespace(address=OWNER)), broadcast=True)
    if is_once:
        await carried
    else:
        with pytest.raises(ChainRejected):
            await carried
    assert len(token.taken) == 1 + is_once


async def test_a_wallet_that_lets_the_bank_take_all_approves_nothing() -> None:
    """What is beside "all" is more than a token can write."""
    for allowed in (UNLIMITED, 2**96 - 1, 2**256 - 1):
        assert await approvals_beside(cast(Market, SharedToken(allowed)), TOKEN, OWNER, 70) == ()
