"""What a scheduler does about its nodes' claims: objections to what it does not owe, strikes, and what they cost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.market_logs import META
from support.tab_scene import TabScene
from support.tabs_stage import PARAMETERS

from troth.chain.errors import ChainRejected, ChainUnavailable
from troth.protocol.contract_errors import ContractError
from troth.protocol.market import claims, messages
from troth.protocol.market import events as on
from troth.protocol.market.calls import read_call
from troth.protocol.market.messages import state_hash
from troth.protocol.market.parts import Part
from troth.protocol.market.state import with_pot
from troth.protocol.market.types import Claim, ClaimState, PotKind
from troth.protocol.types import Hash32
from troth.scheduler.tabs import claiming
from troth.scheduler.tabs.claiming import attend_nodes_claims


async def test_every_late_objection_to_a_nodes_claim_is_struck_whoever_dies_between(tmp_path: Path) -> None:
    """The first one strikes the claim, the others bring back their deposits: they are the scheduler's own money."""
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    await scene.send(scene.asked())
    held = next(iter(scene.context.node_tabs))
    tab, owner = messages.tab_id(held.tab), held.tab.payer
    state = ClaimState(Claim(1, 3, 0, 30, Hash32(b"\x07" * 32)), held.book.voucher, 30, 10_000, held.node)
    claim_id = state_hash(state)
    scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
    late = scene.ledger.block + PARAMETERS.answer_window
    for number in (1, 2, 3):
        bond, have = messages.objection_id(claim_id, number), scene.ledger.state.pot(PotKind.TAB, tab)
        paid = on.Moved(claim_id, PotKind.TAB, tab, PotKind.BOND, bond, 5, have - 5, 5, META)
        scene.ledger.fold(paid, on.Objected(tab, claim_id, number, owner, 5, late + (number == 3), META))
    full = scene.ledger.state.pot(PotKind.TAB, tab)

    def struck(call: Any) -> list[Any]:
        number = read_call(Part.BANK, call.call.data).value("sequence")
        bond, have = messages.objection_id(claim_id, number), scene.ledger.state.pot(PotKind.TAB, tab)
        back = on.Moved(claim_id, PotKind.BOND, bond, PotKind.TAB, tab, 5, 0, have + 5, META)
        falls = [on.ClaimStruck(tab, claim_id, number, META)] if scene.ledger.state.tabs[tab].claim else []
        if not falls and len(scene.ledger.sent) == sent + 2 and not died:
            died.append(number)
            scene.ledger.failure = ChainUnavailable("gone", "a process that dies between two strikes", "")
        return [*falls, back]

    died: list[int] = []
    scene.ledger.block, sent = late, len(scene.ledger.sent)
    scene.ledger.react = struck
    await attend_nodes_claims(scene.context)
    assert len(scene.ledger.sent) == sent  # they may still be shown in this block
    scene.ledger.block += 1
    with pytest.raises(ChainUnavailable):
        await attend_nodes_claims(scene.context)
    assert scene.ledger.state.tabs[tab].claim is None
    scene.ledger.failure = None
    await attend_nodes_claims(scene.context)
    await attend_nodes_claims(scene.context)
    asked = [read_call(Part.BANK, call.call.data).value("sequence") for call in scene.ledger.sent[sent:]]
    assert asked == [1, 2, 3]
    assert scene.ledger.state.pot(PotKind.TAB, tab) == full + 15
    await scene.stop()


async def test_objections_to_many_claims_are_answered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 202: a window of 60 blocks is over before 96 answers are sent, one a block."""
    sent, block = list[tuple[int, int]](), asyncio.Event()

    async def answer(_context: Any, tab: Any, _claim: Any, number: int) -> Any:
        return SimpleNamespace(call=SimpleNamespace(function="answer"), place=(tab.payer, number))

    async def execute(call: Any, _spends: int) -> int:
        sent.append(call.place)
        if len(sent) in {claiming.ANSWERED_TOGETHER, 96}:
            block.set()  # all of them are in one block
        async with asyncio.timeout(5):
            await block.wait()
        block.clear()
        return 7

    monkeypatch.setattr(claiming, "_answer", answer)
    tabs = {}
    for tab in range(3):
        objections = {number: SimpleNamespace(deadline=60 - number) for number in range(32)}
        claim = SimpleNamespace(objections=objections, state=SimpleNamespace(settles_at=0))
        tabs[tab] = SimpleNamespace(tab=SimpleNamespace(payee="me", payer=tab), claim=claim)
    ledger = SimpleNamespace(state=SimpleNamespace(tabs=tabs), block=1, execute=execute, contracts=None)
    context: Any = SimpleNamespace(ledger=ledger, operator=SimpleNamespace(address="me"))
    await claiming.attend_claims(context)
    assert sorted(sent) == [(tab, number) for tab in range(3) for number in range(32)]
    assert [number for _, number in sent] == sorted((number for _, number in sent), reverse=True)


async def test_false_claims_of_many_nodes_are_objected_to_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack 205: nodes that file theirs in one block are not objected to one after the other."""
    sent, block = list[int](), asyncio.Event()

    async def object_to(_context: Any, record: Any, _claim: Any) -> None:
        sent.append(record.tab.payee)
        if len(sent) == 30:
            block.set()
        async with asyncio.timeout(5):
            await block.wait()

    monkeypatch.setattr(claiming, "_object", object_to)
    monkeypatch.setattr(claiming, "strikes_due", lambda *_: ())
    tabs = {
        one: SimpleNamespace(
            tab=SimpleNamespace(payer="me", payee=one),
            claim=SimpleNamespace(state=SimpleNamespace(settles_at=100 - one)),
        )
        for one in range(30)
    }
    parameters = SimpleNamespace(answer_window=10)
    ledger = SimpleNamespace(state=SimpleNamespace(tabs=tabs), block=1, contracts=None, parameters=parameters)
    context: Any = SimpleNamespace(ledger=ledger, operator=SimpleNamespace(address="me"))
    await attend_nodes_claims(context)
    assert sent == list(reversed(range(30))), "those that are settled first"


@pytest.mark.slow
async def test_a_number_that_was_shown_is_not_asked_for_again(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    for _ in range(20):
        await scene.send(scene.asked())
    held = max(scene.context.node_tabs, key=lambda one: len(one.owed))
    fees = {number: owed.fee or 0 for number, owed in held.owed.items()}
    assert len(fees) > 2
    # What is owed for one that came to nothing hides in another one.
    over = fees.pop(min(fees))
    hidden = max(fees, key=lambda number: (fees[number], number))
    claim, _ = claims.claim_of(held.book.voucher, fees | {hidden: fees[hidden] + over})
    owed = claims.owed(held.book.voucher, claim)
    state = ClaimState(claim, held.book.voucher, owed, scene.ledger.block + PARAMETERS.claim_delay, held.node)
    claim_id, tab = state_hash(state), messages.tab_id(held.tab)
    scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
    asked: list[int] = []

    def objected(call: Any) -> list[Any]:
        asked.append(read_call(Part.BANK, call.call.data).value("sequence"))
        deadline = scene.ledger.block + PARAMETERS.answer_window
        return [on.Objected(tab, claim_id, asked[-1], held.tab.payer, 5, deadline, META)]

    scene.ledger.react = objected
    for _ in range(3):
        await attend_nodes_claims(scene.context)
        for number in set(asked) - {hidden}:
            record = scene.ledger.state.tabs[tab].claim
            assert record is not None
            if number in record.objections:
                scene.ledger.fold(on.ObjectionAnswered(tab, claim_id, number, fees[number], META))
    assert sorted(asked) == sorted(fees)
    assert asked[-1] == hidden
    await scene.stop()


async def test_what_the_chain_refuses_of_one_claim_keeps_no_other_waiting(tmp_path: Path) -> None:
    """A leaf that fell since is worth nothing on chain: the answers that come after it are sent all the same."""
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    for _ in range(2):
        await scene.send(scene.asked())
    one, other = list(scene.context.node_tabs)[:2]
    for held in (one, other):
        state = ClaimState(Claim(1, 1, 0, 30, Hash32(b"\x07" * 32)), held.book.voucher, 30, 10_000, held.node)
        tab, claim_id = messages.tab_id(held.tab), state_hash(state)
        late = scene.ledger.block + PARAMETERS.answer_window
        scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
        scene.ledger.fold(on.Objected(tab, claim_id, 1, held.tab.payer, 5, late, META))
    scene.ledger.block += PARAMETERS.answer_window + 1
    sent = len(scene.ledger.sent)

    def refusing(_call: Any) -> list[Any]:
        if len(scene.ledger.sent) == sent + 1:
            raise ChainRejected("strike", ContractError("NoObjection", {}, ""))
        return []

    scene.ledger.react = refusing
    await attend_nodes_claims(scene.context)
    struck = [read_call(Part.BANK, call.call.data).value("sequence") for call in scene.ledger.sent[sent:]]
    assert struck == [1, 1]
    await scene.stop()


@pytest.mark.parametrize("cheap", [True, False])
async def test_a_sum_beside_the_claimed_numbers_is_looked_for_while_that_is_worth_it(
    tmp_path: Path, cheap: bool
) -> None:
    """The tree of a claim may have money under a number that is left out: the scheduler asks for that place as well."""
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    for _ in range(12):
        await scene.send(scene.asked())
    held = max(scene.context.node_tabs, key=lambda one: len(one.owed))
    first, last = min(held.owed), max(held.owed)
    assert last > first
    fee = held.owed[last].fee or 0
    hidden = held.book.voucher.authorised - held.book.voucher.spent - fee
    tree = claims.build(first, last, {first: hidden, last: fee})
    left_out = (1 << last - first) - 1
    claim = Claim(first, last, left_out, tree.total, tree.root)
    state = ClaimState(claim, held.book.voucher, fee + hidden, scene.ledger.block + PARAMETERS.claim_delay, held.node)
    claim_id, tab = state_hash(state), messages.tab_id(held.tab)
    scene.ledger.fold(on.Claimed(tab, claim_id, state, META))
    deposit = 1 if cheap else hidden

    async def objection_deposit() -> int:
        return deposit

    scene.ledger.objection_deposit = objection_deposit  # type: ignore[method-assign]
    asked: list[int] = []

    def objected(call: Any) -> list[Any]:
        asked.append(read_call(Part.BANK, call.call.data).value("sequence"))
        deadline = scene.ledger.block + PARAMETERS.answer_window
        return [on.Objected(tab, claim_id, asked[-1], held.tab.payer, 5, deadline, META)]

    scene.ledger.react = objected
    await attend_nodes_claims(scene.context)
    assert asked[0] == last
    scene.ledger.fold(on.ObjectionAnswered(tab, claim_id, last, fee, META))
    await attend_nodes_claims(scene.context)
    assert (first in asked) is cheap
    await scene.stop()


@pytest.mark.parametrize("covered", [True, False])
async def test_an_objection_takes_nothing_from_what_covers_promises(tmp_path: Path, covered: bool) -> None:
    """A node that answers each of them would have its scheduler convicted for a tab that its own objections emptied."""
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    await scene.send(scene.asked())
    held = next(one for one in scene.context.node_tabs if one.owed)
    number, deposit = min(held.owed), await scene.ledger.objection_deposit()
    owed = held.book.authorised + 1
    # Another order was authorised since.
    held.book = replace(held.book, bounds={**held.book.bounds, max(held.book.bounds) + 1: 10})
    balance = held.book.authorised + deposit - (0 if covered else 1)
    assert balance > owed + deposit
    scene.ledger.state = with_pot(scene.ledger.state, PotKind.TAB, messages.tab_id(held.tab), balance)
    claim = Claim(number, number, 0, owed, Hash32(b"\x07" * 32))
    state = ClaimState(claim, held.book.voucher, owed, scene.ledger.block + PARAMETERS.claim_delay, held.node)
    scene.ledger.fold(on.Claimed(messages.tab_id(held.tab), state_hash(state), state, META))
    await attend_nodes_claims(scene.context)
    assert scene.ledger.sent[-1].call.value == (0 if covered else deposit)
    await scene.stop()


@pytest.mark.parametrize("covered", [True, False])
async def test_where_a_tab_does_not_hold_the_deposit_the_scheduler_adds_it(tmp_path: Path, covered: bool) -> None:
    """A node that claims all that its tab holds can be objected to."""
    scene = TabScene(tmp_path, nodes=9)
    scene.start()
    await scene.send(scene.asked())
    held = next(one for one in scene.context.node_tabs if one.owed)
    tab, number = messages.tab_id(held.tab), min(held.owed)
    balance, deposit = scene.ledger.state.pot(PotKind.TAB, tab), await scene.ledger.objection_deposit()
    owed = balance - deposit + (0 if covered else 1)
    claim = Claim(number, number, 0, owed, Hash32(b"\x07" * 32))
    settles = scene.ledger.block + PARAMETERS.claim_delay
    state = ClaimState(claim, held.book.voucher, owed, settles, held.node)
    scene.ledger.fold(on.Claimed(tab, state_hash(state), state, META))
    await attend_nodes_claims(scene.context)
    assert scene.ledger.sent[-1].call.value == (0 if covered else deposit)
    await scene.stop()
