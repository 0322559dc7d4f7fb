"""A model in three segments over processes on tabs, with real weights: each part is checked, and pays for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pipeline_network import SEGMENTS, PipelineNetwork, pipeline_plan

from troth.chain.market import Market, find_place
from troth.chain.market_follower import MarketFollower
from troth.client.orders.updates import OrderOutcome
from troth.protocol.market import proceedings
from troth.protocol.market.state import State
from troth.protocol.market.types import PotKind
from troth.protocol.types import to_address
from troth.testnet.asking import Answered, Asker
from troth.testnet.display import Display
from troth.testnet.network import FAVOURED_SEATS, SEATS
from troth.testnet.weights import int8_name, prepare_models

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.model, pytest.mark.chain, pytest.mark.timeout(1800)]

MODELS = Path(__file__).resolve().parents[2] / ".troth"
QUESTION = "Count from one to twenty in words."
TOKENS, FEW, MOST_QUESTIONS = 24, 6, 30
CASE_SECONDS = 400.0


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Fourteen nodes of fourteen owners, each in two of three groups, and a client with a tab."""
    plan = pipeline_plan()
    prepare_models(MODELS, plan, Display())
    folder = tmp_path_factory.mktemp("pipelines") / "network"
    with PipelineNetwork(folder, MODELS, plan, report=lambda line: None, ready_seconds=900.0) as network:
        network.start()
        made = Asker(network)
        made.open_tab()
        yield made


async def asked(asker: Asker, most: int = TOKENS, kill: int | None = None, question: str = QUESTION) -> Answered:
    """An answer that is always checked; with ``kill`` the node of that segment dies after the third piece."""

    def heard(answered: Answered, _piece: str) -> None:
        if kill is not None and answered.pieces == 3:
            child = asker.network.node_of(answered.nodes[-1][kill]).child
            assert child is not None
            child.process.kill()

    return await asker.asked([{"role": "user", "content": question}], most, heard)


async def test_a_node_that_dies_midway_costs_nobody_the_answer(asker: Asker) -> None:
    whole = await asked(asker)
    assert (whole.outcome, whole.anew) == (OrderOutcome.CHECKED, 0)
    assert len(whole.nodes[0]) == len(whole.verifiers) == len(SEGMENTS), "each segment has a node and verifiers"
    assert not any(node in verifiers for node, verifiers in zip(whole.nodes[0], whole.verifiers, strict=True))
    broken = await asked(asker, kill=1)
    dead = asker.network.node_of(broken.nodes[0][1])
    # It hosts two segments and may be a verifier, too: the others are a majority, unless it has two seats of three.
    seats = [verifiers.count(to_address(dead.operator)) for verifiers in broken.verifiers]
    assert broken.outcome is (OrderOutcome.REFUSED_CHECK if max(seats) > 1 else OrderOutcome.CHECKED)
    assert (broken.anew, broken.text) == (1, whole.text)
    assert broken.nodes[1][1] != dead.operator
    assert dead.child is not None
    dead.child.process.wait(60)
    asker.network.start_node(dead.name)


async def test_a_cheat_in_one_segment_is_rejected_and_pays_alone(asker: Asker) -> None:
    network = asker.network
    assert isinstance(network, PipelineNetwork)
    cheat = to_address(network.nodes[network.favoured].operator)
    network.start_cheating(network.favoured, MODELS / "models" / int8_name(network.plan))
    for number in range(MOST_QUESTIONS):
        answered = await asked(asker, FEW, question=f"Name a thing that is {number} metres long.")
        if answered.outcome is OrderOutcome.REJECTED:
            break
        assert answered.outcome is OrderOutcome.CHECKED
        assert cheat not in answered.nodes[-1], "no int8 answer passes a check"
    assert answered.outcome is OrderOutcome.REJECTED
    assert cheat in answered.nodes[-1]
    # It may have been drawn for both segments that it hosts: each is a case of its own.
    segments = {index for index, node in enumerate(answered.nodes[-1]) if node == cheat}
    state = await court(network, len(segments))
    assert {case.state.segment for case in state.cases.values()} == segments
    assert {(case.outcome, case.state.node) for case in state.cases.values()} == {
        (proceedings.Outcome.CONVICTED, cheat)
    }
    seat = int(network.execution["class"]["seat_units"])
    for node in network.nodes.values():
        operator = to_address(node.operator)
        bound = sum(state.pot(kind, operator) for kind in (PotKind.STAKE, PotKind.LOCKED))
        assert (bound < FAVOURED_SEATS * seat) if operator == cheat else bound == SEATS * seat, node.name
    assert set(state.convictions) == {cheat}


async def court(network: PipelineNetwork, cases: int) -> State:
    """The state once so many cases are over; verifiers bring them by themselves."""
    place = await find_place(network.rpc, to_address(network.factory))
    async with await Market.connect(network.rpc, place) as connected, MarketFollower(connected) as follower:
        await follower.catch_up()
        return await follower.wait_until(
            lambda state: len(state.cases) >= cases and not any(case.live for case in state.cases.values()),
            CASE_SECONDS,
        )
