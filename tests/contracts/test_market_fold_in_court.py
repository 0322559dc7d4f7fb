"""Random cases, summonses and convictions on a real deployment; the folded state must equal what every getter says.

Parties and money are driven at random by ``test_market_fold_matches_getters``; here it is Court, Summons and Evidence.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from benchmarks.market import cases, convictions
from benchmarks.market.cases import Case
from benchmarks.market.orders import draw_verifiers, open_tab, serve
from benchmarks.market.stage import GWEI, PARAMETERS, Stage, build_stage, class_of, key
from support.folding import fold

from troth.chain import decoding
from troth.protocol.market import economy, messages, reveals
from troth.protocol.market.events import (
    CaseDecided,
    CaseRestarted,
    NodeSilent,
    PassedOn,
    Responded,
    ReviewsCommitted,
    Summoned,
    parse_log,
)
from troth.protocol.market.fold import case_after
from troth.protocol.market.getters import GetterQuestions
from troth.protocol.market.messages import compact, sign
from troth.protocol.market.parts import Part
from troth.protocol.market.proceedings import NodeReveal, Outcome, Reveal, SummonsKind
from troth.protocol.market.signed import Promise, Work
from troth.protocol.market.state import State
from troth.protocol.market.types import ExecutionClass
from troth.protocol.types import ZERO_HASH, Address, Hash32

pytestmark = [pytest.mark.chain, pytest.mark.slow]

MEMBERS, REVIEWERS, OPERATIONS = 40, 5, 12


@dataclass
class Play:
    """A stage, its two classes, and what was done."""

    stage: Stage
    random: random.Random
    classes: tuple[ExecutionClass, ExecutionClass]
    done: Counter[str] = field(default_factory=Counter)
    nodes: int = 0

    def rules(self) -> ExecutionClass:
        return self.random.choice(self.classes)

    def node(self, rules: ExecutionClass) -> Address:
        """One that was not judged before."""
        self.nodes += 1
        return key(f"{rules.name} node {self.nodes}").address

    def name(self) -> str:
        return f"{self.nodes} {sum(self.done.values())}"

    def state(self) -> State:
        """Folded from all logs of the deployment."""
        contracts, factory = self.stage.place.contracts, self.stage.place.factory
        addresses = [factory, *(part.of(contracts) for part in Part)]
        wanted = {"fromBlock": "0x0", "toBlock": "latest", "address": addresses}
        found = decoding.logs(self.stage.node.rpc("eth_getLogs", wanted))
        return fold(parse_log(log, contracts, factory) for log in found)

    def compare(self) -> State:
        """Every getter against the fold, at the newest block and at a past one."""
        state, block = self.state(), self.stage.block
        for word in GetterQuestions(self.stage.place.contracts, state, (block, block - 30)).words():
            data = {"to": word.part.of(self.stage.place.contracts), "data": decoding.hexadecimal(word.view.view.data)}
            answered = word.view.view.result(decoding.data(self.stage.node.rpc("eth_call", data, "latest")))
            assert answered == word.expected, (word.about, answered, word.expected)
        assert state.held() == state.came_in - state.went_out
        return state


@pytest.fixture
def play(request: pytest.FixtureRequest, anvil: Any) -> Play:
    stage = build_stage(anvil.url)
    made = tuple(_class(exact) for exact in (True, False))
    for rules in made:
        stage.send(Part.CLASSES, "registerClass", rules, sender=stage.scheduler.address)
        for number in range(MEMBERS):
            stage.register_node(f"{rules.name} node {number}", rules)
    stage.mine(30)
    return Play(stage, random.Random(request.param), (made[0], made[1]))


def _class(exact: bool) -> ExecutionClass:
    rules = replace(class_of("exact" if exact else "tolerant", exact=exact), reviewers=REVIEWERS)
    penalty = economy.least_penalty(rules.fee_cap, economy.detection_of(rules))
    seat = economy.least_seat(penalty, economy.case_gas_of(rules), PARAMETERS.gas_price)
    return replace(rules, penalty=penalty, seat=seat)


# ----------------------------------------------------------------------------------------------------------- cases


def _opened(play: Play) -> Case:
    rules = play.rules()
    case = cases.prepare(play.stage, rules, play.node(rules), play.name())
    cases.open_case(case, suspend=play.random.random() < 0.5)
    return case


def together(play: Play) -> None:
    """Everybody speaks at once."""
    rules = play.rules()
    node, suspend = play.node(rules), play.random.random() < 0.5
    cases.carry(play.stage, rules, node, play.name(), suspend=suspend, together=True)
    play.done["together"] += 1


def step_by_step(play: Play) -> None:
    """Some post by themselves, and some show by themselves."""
    case = _opened(play)
    cases.draw(case, *cases.draw_seats(case))
    commitments, signatures, salts = cases.pledges(case, case.state.reviewers)
    given = [signatures[65 * place : 65 * place + 65] for place in range(len(commitments))]
    for place, reviewer in enumerate(case.state.reviewers):
        if play.random.random() < 0.4:
            arguments = (case.identifier, case.state, commitments[place])
            play.stage.send(Part.COURT, "post", *arguments, sender=reviewer)
            commitments[place], given[place] = ZERO_HASH, b""
            play.done["post"] += 1
    sent = case.send("commit", case.identifier, case.state, commitments, b"".join(given))
    case.state = case_after(sent.only(ReviewsCommitted), case.state)
    if not case.rules.exact:
        cases.seed(case)
    node, shown = cases.parts(case, salts, case.state.seed)
    _show(play, case, node, shown)
    packed = reveals.encode(shown, node.tiles)
    decided = case.send("decide", case.identifier, case.state, node, packed).only(CaseDecided)
    assert decided.outcome is Outcome.CONVICTED
    play.done["decide"] += 1


def _show(play: Play, case: Case, node: NodeReveal, shown: list[Reveal]) -> None:
    if play.random.random() < 0.5:
        play.stage.send(Part.COURT, "revealNode", case.identifier, case.state, node, sender=case.node)
        play.done["revealNode"] += 1
    for place, reviewer in enumerate(case.state.reviewers):
        if play.random.random() < 0.4:
            arguments = (case.identifier, case.state, place, reveals.encode([shown[place]]))
            play.stage.send(Part.COURT, "reveal", *arguments, sender=reviewer)
            play.done["reveal"] += 1


def lapsed(play: Play) -> None:
    """Nobody draws."""
    case = _opened(play)
    play.stage.mine(PARAMETERS.lookahead + PARAMETERS.draw_window + 1)
    outcome = case.send("expire", case.identifier, case.state).only(CaseDecided).outcome
    assert outcome is Outcome.LAPSED
    play.done["lapsed"] += 1


def undecided(play: Play) -> None:
    """Nobody commits, twice; or there are no tiles."""
    case = _opened(play)
    for _ in range(2):
        header, hints, reviewers = cases.draw_seats(case)
        if case.rules.exact or play.random.random() < 0.5:
            cases.draw(case, header, hints, reviewers)
            play.stage.mine(PARAMETERS.commit_window + 1)
        else:
            cases.convene(case, header, hints, reviewers)
            play.stage.mine(PARAMETERS.lookahead + PARAMETERS.draw_window + 1)
        sent = case.send("expire", case.identifier, case.state)
        restarted = [event for event in sent.events if isinstance(event, CaseRestarted)]
        if restarted:
            case.state = case_after(restarted[0], case.state)
    assert sent.only(CaseDecided).outcome is Outcome.UNDECIDED
    play.done["undecided"] += 1


# -------------------------------------------------------------------------------------------------------- summonses


def answered(play: Play) -> None:
    """A check and results of two orders are asked for and shown."""
    rules = play.rules()
    convictions.summon(play.stage, rules, play.node(rules))
    play.done["answered"] += 1


def unanswered(play: Play) -> None:
    """The scheduler passes a summons on to a verifier that speaks or is silent, and is silent itself in the end."""
    stage, rules = play.stage, play.rules()
    leaf = serve(stage, open_tab(stage, f"in vain {play.name()}"), rules, [play.node(rules)], name=play.name())
    deposit = stage.read(Part.SUMMONS, "depositFor", SummonsKind.CHECK, GWEI, returns=int)
    arguments = (leaf.signed, leaf.draw, leaf.draw_signature, 0, leaf.secrets.draw)
    client = leaf.signed.client
    asked = stage.send(Part.SUMMONS, "summonCheck", *arguments, sender=client, value=deposit).only(Summoned)
    summons, state = asked.summons_id, asked.state
    if play.random.random() < 0.7:
        state = _pass_on(play, rules, leaf, summons, state)
    stage.mine(state.deadline + 1 - stage.block)
    stage.send(Part.SUMMONS, "convict", summons, state, sender=client)
    play.done["unanswered"] += 1


def _pass_on(play: Play, rules: ExecutionClass, leaf: Any, summons: Hash32, state: Any) -> Any:
    stage = play.stage
    seed = messages.check_seed(leaf.digest, leaf.secrets.draw, leaf.draw.beta, leaf.draw.results)
    verifiers, hints = draw_verifiers(stage, leaf, rules, seed)
    verifier = verifiers[0]
    opened = open_tab(stage, f"to {verifier} {play.name()}", payee=verifier, tab_key=stage.scheduler)
    order = leaf.order
    promise = Promise(opened.id, 1, leaf.digest, 0, Work.CHECK, order.reference_block, 0, 0, 0, rules.check_price)
    deposit = stage.read(Part.SUMMONS, "passDepositFor", GWEI, returns=int)
    shown = (list(leaf.results), [compact(one) for one in leaf.result_signatures])
    signed = (opened.tab, promise, sign(promise, stage.domain, stage.scheduler.secret).signature)
    by = stage.scheduler.address
    sent = stage.send(Part.SUMMONS, "passOnCheck", summons, state, *shown, *signed, hints, sender=by, value=deposit)
    state = sent.only(PassedOn).state
    if play.random.random() < 0.5:
        play.done["responded"] += 1
        return stage.send(Part.SUMMONS, "respond", summons, state, b"", sender=verifier).only(Responded).state
    stage.mine(state.deadline + 1 - stage.block)
    play.done["silent"] += 1
    return stage.send(Part.SUMMONS, "convict", summons, state, sender=by).only(NodeSilent).state


# --------------------------------------------------------------------------------------------------------- evidence


def convicted(play: Play) -> None:
    """Two words of one node for one place."""
    rules = play.rules()
    node, reporter = play.node(rules), convictions.account("reporter")
    play.stage.fund(reporter)
    fault = play.random.choice(list(convictions.NODES_FAULTS))
    convictions.convict_node(play.stage, rules, node, fault, reporter)
    play.done["convicted"] += 1


OPERATIONS_OF: tuple[Callable[[Play], None], ...] = (
    together,
    step_by_step,
    lapsed,
    undecided,
    answered,
    unanswered,
    convicted,
)
AGAIN = tuple(one for one in OPERATIONS_OF if one is not answered)
"""The benchmark's summonses are of tabs of their own, which it opens once."""


@pytest.mark.parametrize("play", [1, 2], indirect=True)
def test_fold_equals_getters_after_random_cases_summonses_and_convictions(play: Play) -> None:
    for number in range(OPERATIONS):
        # Each kind once at least, then what chance picks.
        least = [one for one in OPERATIONS_OF if number < len(OPERATIONS_OF)]
        operation = least[number] if least else play.random.choice(AGAIN)
        operation(play)
        if number % 5 == 0:
            play.compare()
    state = play.compare()
    assert {"together", "decide", "lapsed", "undecided", "answered", "unanswered", "convicted"} <= set(play.done)
    assert state.cases
    assert state.summons
    assert state.convictions
    assert state.proven
