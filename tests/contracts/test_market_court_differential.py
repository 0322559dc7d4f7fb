"""The court's judgement, its money and the worth of leaves: the deployed contracts against the Python rules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.market_judgement import Maker, RandomCase, silent_mask
from support.market_leaves import (
    CHECK_LEAF,
    INFERENCE_LEAF,
    NODE,
    ORDER_LEAF,
    ORDERS,
    PROMISES,
    SCENE,
    STANDING,
    VERIFIER,
    VIEW,
    checked,
    redrawn,
    tab_of,
)
from support.market_scene import BLOCK, DOMAIN, Scene, owner_of
from support.movements import fine_movements
from web3.exceptions import ContractLogicError

from troth.protocol.bindings import named
from troth.protocol.bindings.structs import decode_parameters, encode_parameters, from_abi, to_abi
from troth.protocol.errors import ProtocolError
from troth.protocol.market import convictions, court, court_money, leaves, reveals
from troth.protocol.market.addresses import creation_code
from troth.protocol.market.court import CaseFinding
from troth.protocol.market.court_money import Circumstances, Pot, pot_of
from troth.protocol.market.proceedings import CasePhase, CaseState, Fault, Outcome
from troth.protocol.market.signed import Opinion
from troth.protocol.market.types import NO_ADDRESS, Movement, Parameters, PotKind, Rules, Tab
from troth.protocol.types import ZERO_ADDRESS, Address, Hash32, address_to_bytes, to_address

pytestmark = [pytest.mark.chain, pytest.mark.slow]

GAS_PRICE = 10**8
PARAMETERS = Parameters(
    asset=owner_of(9),  # a token: gas is paid back at the ceiling
    lag=50,
    summons_window=20,
    lookahead=1,
    draw_window=1,
    commit_window=1,
    reveal_window=1,
    claim_delay=90,
    answer_window=10,
    close_delay=92,
    unbonding=500,
    seasoning=10,
    reference_age=20,
    suspension_pause=72,
    scheduler_stake=1,
    gas_price=GAS_PRICE,
    weights=NO_ADDRESS,
    prover=NO_ADDRESS,
)
CASES = 12
"""Per seed and kind of class."""


@dataclass(frozen=True)
class Stage:
    """The stateless parts on a chain, at the address that the scene's messages are signed for."""

    harness: Any
    judgement: Address
    leaves: Address

    def block(self) -> int:
        return int(self.harness.functions.blockNumber().call())

    def send(self, call: Any) -> None:
        web3 = self.harness.w3
        receipt = web3.eth.wait_for_transaction_receipt(
            call.transact({"from": web3.eth.accounts[0], "gas": 10**8}), poll_latency=0.005
        )
        assert receipt["status"] == 1

    def set(self, used: Rules, pots: dict[Pot, int]) -> None:
        kinds, ids = [int(kind) for kind, _ in pots], [one for _, one in pots]
        self.send(self.harness.functions.set(to_abi(used), kinds, ids, list(pots.values())))

    def ask(self, function: str, arguments: Sequence[Any], caller: Address, word: int) -> tuple[Any, ...]:
        """What the Judgement answers to a call that was handed on by the Court."""
        entry = named("function", "market/judgement")[function]
        data = entry.selector + encode_parameters(entry.inputs, [to_abi(one) for one in arguments])
        data += bytes(12) + address_to_bytes(caller) + word.to_bytes(32)
        answer = self.harness.w3.eth.call({"to": self.judgement, "data": data, "gas": 10**9})
        return decode_parameters(entry.outputs, bytes(answer))


@pytest.fixture(scope="module")
def stage(court_harness: Any) -> Stage:
    web3, place = court_harness.w3, DOMAIN.contract
    code = web3.eth.get_code(court_harness.address)
    web3.provider.make_request("anvil_setCode", [place, "0x" + bytes(code).hex()])
    web3.provider.make_request("anvil_mine", [hex(BLOCK)])
    harness = web3.eth.contract(address=place, abi=court_harness.abi)
    made = Stage(harness, ZERO_ADDRESS, ZERO_ADDRESS)
    made.send(harness.functions.begin(to_abi(PARAMETERS), [creation_code(part) for part in ("judgement", "leaves")]))
    return Stage(harness, *(harness.functions.parts(number).call() for number in range(2)))


@pytest.fixture(autouse=True)
def _same_chain(stage: Stage) -> Iterator[None]:
    """Each test begins at the stage's block: an order grows too old to be owed, however many tests ran before."""
    provider = stage.harness.w3.provider
    before = provider.make_request("evm_snapshot", [])["result"]
    yield
    assert provider.make_request("evm_revert", [before])["result"]


# -------------------------------------------------------------------------------------------------- what was shown


def _movements(transfers: bytes) -> tuple[Movement, ...]:
    if not transfers:
        return ()
    function = named("function", "market/bank")
    name = "moveMany" if transfers[:4] == function["moveMany"].selector else "move"
    assert transfers[:4] == function[name].selector
    subject, moved = decode_parameters(function[name].inputs, transfers[4:])
    if name == "moveMany":
        return court_money.unpack_movements(Hash32(subject), moved)
    return tuple(from_abi(Movement, one) for one in moved)


def _left(case: RandomCase, movements: Sequence[Movement]) -> int:
    bond = (PotKind.BOND, case.case_id)
    return case.state.bond - sum(one.amount for one in movements if (one.from_kind, one.from_id) == bond)


def _around(case: RandomCase, stage: Stage, decider: Address) -> Circumstances:
    return Circumstances(case.pots, GAS_PRICE, decider, case.pool, stage.block(), case.voided)


def _decided(case: RandomCase) -> CaseFinding:
    found = court.judge(case.hearing, case.rules)
    undecided = found.outcome is Outcome.NONE and case.state.round % 2
    return replace(found, outcome=Outcome.UNDECIDED) if undecided else found


def _compare(case: RandomCase, stage: Stage) -> tuple[Outcome, Fault | None]:
    """One case, in both languages: how it ends, and of what it convicts."""
    stage.set(case.rules, case.pots)
    stage.send(stage.harness.functions.setPool(case.pool.count, case.pool.since))
    packed = reveals.encode(case.reveals, case.node.tiles)
    arguments = (case.case_id, case.state, case.node, packed)
    posted = case.posted & (1 << len(case.state.reviewers)) - 1
    word = (1 << 127) * case.voided | posted
    answer, transfers = stage.ask("decide", arguments, case.decider, word)
    outcome, cluster, score, spread, convict, fault, owner, count, since, left, seed = answer
    assert not any(seed)
    found = _decided(case)
    around = replace(_around(case, stage, case.decider), posted=_places(case.state, posted))
    assert Outcome(outcome) is found.outcome
    movements = court_money.settle(case.state, found, case.rules, around)
    assert _movements(transfers) == movements
    if found.outcome in {Outcome.NONE, Outcome.UNDECIDED}:
        assert (cluster, left) == (0, _left(case, movements))
        return found.outcome, None
    assert (cluster, score, spread) == (silent_mask(found.cluster), found.score, found.spread)
    counted = case.pool.counted(around.block, case.rules)
    convicted = court_money.convict_of(case.state, found, counted, case.rules)
    assert (to_address(convict), fault) == (convicted or (ZERO_ADDRESS, fault))
    pooled = (case.state.node, counted.count, counted.since) if found.pooled else (ZERO_ADDRESS, 0, 0)
    assert (to_address(owner), count, since) == pooled
    court_money.apply_movements(case.pots, movements)
    return found.outcome, convicted and convicted[1]


@pytest.mark.parametrize("exact", [True, False])
def test_every_outcome_and_its_money_are_equal(stage: Stage, exact: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        maker = Maker(random.Random(seed))
        for _ in range(CASES):
            seen.update({repr(one) for one in _compare(maker.case(block=stage.block(), exact=exact), stage)})
    wanted = {*Outcome, Fault.FALSE_RESULT, Fault.NOTHING_SHOWN, Fault.POOLED} - {Outcome.LAPSED}
    assert {repr(one) for one in wanted} <= set(seen), seen


@pytest.mark.parametrize("phase", [CasePhase.OPENED, CasePhase.DRAWN, CasePhase.COMMITTED])
def test_cases_that_expire_move_the_same(stage: Stage, phase: CasePhase) -> None:
    maker = Maker(random.Random(int(phase)))
    for _ in range(2 * CASES):
        case = maker.case(block=stage.block(), exact=False)
        case = replace(case, state=replace(case.state, phase=phase))
        stage.set(case.rules, case.pots)
        posted = maker.source.getrandbits(len(case.state.reviewers))
        answer, transfers = stage.ask("expire", (case.case_id, case.state), case.decider, posted)
        if phase is CasePhase.OPENED:
            assert Outcome(answer[0]) is Outcome.LAPSED
            assert _movements(transfers) == court_money.lapse(case.state, case.rules, case.pots)
            continue
        found = CaseFinding(
            Outcome.UNDECIDED if case.state.round % 2 else Outcome.NONE, silent=_silent(case.state, posted)
        )
        around = replace(_around(case, stage, ZERO_ADDRESS), posted=_places(case.state, posted))
        movements = court_money.settle(case.state, found, case.rules, around)
        assert (Outcome(answer[0]), answer[-2]) == (found.outcome, _left(case, movements))
        assert _movements(transfers) == movements


def _places(state: CaseState, posted: int) -> frozenset[int]:
    return frozenset(index for index in range(len(state.reviewers)) if posted >> index & 1)


def _silent(state: CaseState, posted: int) -> frozenset[int]:
    """Who did not post before the commitments were ended, or is not among those that were."""
    if state.phase is CasePhase.DRAWN:
        return frozenset(index for index in range(len(state.reviewers)) if not posted >> index & 1)
    return frozenset(index for index, one in enumerate(state.commitments) if not any(one))


# ------------------------------------------------------------------------------------------------------------ fines


@pytest.mark.parametrize("seed", range(30))
def test_fines_are_equal(stage: Stage, seed: int) -> None:
    source = random.Random(seed)
    convict, *payees = (Maker(source).account() for _ in range(3))
    stake, locked, penalty = (source.choice((0, source.randint(0, 1000))) for _ in range(3))
    pots = {pot_of(PotKind.STAKE, convict): stake, pot_of(PotKind.LOCKED, convict): locked}
    stage.set(VIEW.rules, pots)
    owed = [(one, source.choice((0, source.randint(0, 600)))) for one in payees]
    moved = _movements(stage.harness.functions.fine(convict, penalty, owed).call())
    taken, _ = convictions.fine(stake + locked, penalty)
    expected = fine_movements(convict, stake, taken, owed)
    assert tuple(one for one in moved if one.amount) == expected
    after = court_money.apply_movements(pots, expected)
    assert sum(amount for (kind, _), amount in after.items() if kind not in {PotKind.STAKE, PotKind.LOCKED}) == taken


# ----------------------------------------------------------------------------------------------------------- leaves


def _stand(stage: Stage, standing: leaves.LeafContext, execution_class: Hash32) -> None:
    """The chain says of nodes and leaf what ``standing`` does."""
    known = list(standing.bonded)
    every = [*SCENE.view.groups[0].owners]
    stage.set(standing.rules, {pot_of(PotKind.STAKE, node): standing.bonded.get(node, 0) for node in every})
    stage.send(stage.harness.functions.setClasses(every, bytes(32)))
    stage.send(stage.harness.functions.setClasses(known, execution_class))
    stage.send(stage.harness.functions.setVoid(bool(standing.convicted)))  # whoever is asked about


def _worth_on_chain(stage: Stage, leaf: leaves.Leaf, tab: Tab, number: int = 1) -> int | None:
    """What the contract says that a leaf is worth; None if it refuses it."""
    entry = named("function", "market/leaves")["leafWorth"]
    arguments = (tab, leaves.kind_of(leaf), number, leaves.encode(leaf))
    data = entry.selector + encode_parameters(entry.inputs, [to_abi(one) for one in arguments])
    try:
        answer = stage.harness.w3.eth.call({"to": stage.leaves, "data": data})
    except ContractLogicError:
        return None
    return int(decode_parameters(entry.outputs, bytes(answer))[0])


def _worth_here(leaf: leaves.Leaf, tab: Tab, standing: leaves.LeafContext, number: int = 1) -> int | None:
    try:
        return leaves.worth(leaf, tab, number, standing)
    except ProtocolError:
        return None


def _both(stage: Stage, leaf: leaves.Leaf, tab: Tab, standing: leaves.LeafContext, number: int = 1) -> int | None:
    _stand(stage, standing, SCENE.order.execution_class)
    fresh = replace(
        standing, block=stage.block(), window=PARAMETERS.summons_window, answer_age=court.answer_age(PARAMETERS)
    )
    found = _worth_on_chain(stage, leaf, tab, number)
    assert found == _worth_here(leaf, tab, fresh, number)
    return found


def _sayable(name: str) -> bool:
    """Whether the harness, whose court and summonses never found anything, can stand as this leaf has it."""
    return not ORDERS[name][1].keys() & {"block", "answer_age", "voided", "unanswered"}


@pytest.mark.parametrize("name", ["honest", *filter(_sayable, ORDERS)])
def test_the_worth_of_orders_is_equal(stage: Stage, name: str) -> None:
    change, standing, *_ = ORDERS.get(name, (lambda leaf: leaf, {}))
    found = _both(stage, change(redrawn(ORDER_LEAF, stage.block())), VIEW.tab, replace(STANDING, **standing))
    assert (found is not None) is (name == "honest")


def test_draws_are_fresh_for_as_long_in_both(stage: Stage) -> None:
    _stand(stage, STANDING, SCENE.order.execution_class)
    now, window = stage.block(), PARAMETERS.summons_window
    for age, owed in ((window, True), (window + 1, False), (0, True), (-1, False)):
        leaf = redrawn(ORDER_LEAF, now - age)
        here = _worth_here(leaf, VIEW.tab, replace(STANDING, block=now, window=window))
        assert _worth_on_chain(stage, leaf, VIEW.tab) == here
        assert (here is not None) is owed


def test_draws_are_heard_up_to_the_same_age_in_both(stage: Stage) -> None:
    _stand(stage, STANDING, SCENE.order.execution_class)
    oldest = SCENE.order.reference_block + court.answer_age(PARAMETERS)
    stage.harness.w3.provider.make_request("anvil_mine", [hex(oldest + 1 - stage.block())])
    standing = replace(
        STANDING, block=stage.block(), window=PARAMETERS.summons_window, answer_age=court.answer_age(PARAMETERS)
    )
    for block, owed in ((oldest, True), (oldest + 1, False)):
        leaf = redrawn(ORDER_LEAF, block)
        here = _worth_here(leaf, VIEW.tab, standing)
        assert _worth_on_chain(stage, leaf, VIEW.tab) == here
        assert (here is not None) is owed


@pytest.mark.parametrize("name", ["inference", "check", *PROMISES])
def test_the_worth_of_promises_is_equal(stage: Stage, name: str) -> None:
    honest: dict[str, Any] = {"inference": INFERENCE_LEAF, "check": CHECK_LEAF}
    leaf, change, *_ = PROMISES.get(name, (honest.get(name), lambda leaf: leaf))
    tab = tab_of(NODE if leaf is INFERENCE_LEAF else VERIFIER)
    assert (_both(stage, change(leaf), tab, STANDING) is not None) is (name in honest)
    assert _both(stage, change(leaf), tab, STANDING, number=2) is None
    assert _both(stage, change(leaf), tab, replace(STANDING, convicted=frozenset({tab.payee}))) is None


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("opinion", [Opinion.ACCEPT, Opinion.REJECT, Opinion.CANNOT_TELL])
def test_what_a_check_is_worth_is_equal(stage: Stage, seed: int, opinion: Opinion) -> None:
    noise = (1e-7, 1e-4, 2e-3, 1e-2, 0.05, 0.2, 0.5, 1.0)[seed]
    _both(stage, checked(SCENE, opinion, noise=noise, seed=seed + 1), tab_of(VERIFIER), STANDING)
    exact = Scene({"exact": True, "tiles": 0}, parts=(6, 12))
    standing = replace(STANDING, rules=exact.view.rules)
    _both(stage, checked(exact, opinion, seed=seed % 2), tab_of(VERIFIER), standing)
