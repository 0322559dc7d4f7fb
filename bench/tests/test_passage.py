"""A request at its entry, in the paper's forwarding: forwarded once, never in a circle, refused with a time."""

from __future__ import annotations

import random

from research.forwarding.real.passage import CHOICES, MEMORY, Passage, PassageAction, retry_after
from support.prefixes import IDLE, naming, view_of, words

from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.update import NodeLoad

NAMING = naming()
NODES = [f"node {number}" for number in range(8)]


def _forwarder() -> Forwarder:
    return Forwarder(view_of(NODES, NAMING), Gated(), random.Random(1))


def _path(*blocks: int) -> list[tuple[int, int]]:
    return list(NAMING.path(words(blocks)))


def test_a_passage_counts_what_this_node_serves() -> None:
    passage = Passage(NODES[0], _forwarder())
    passage.take(b"forwarded here", IDLE, 0.0)
    passage.take(b"full", NodeLoad(queued=99, capacity=8), 0.0)
    passage.enter(b"stays", _path(1), 32, NODES[:1], 0.0)
    passage.enter(b"leaves", _path(1), 32, NODES[1:2], 0.0)
    assert passage.taken == 2


def test_a_request_is_forwarded_once_and_a_circle_is_refused() -> None:
    passage, other = Passage(NODES[0], _forwarder()), Passage(NODES[1], _forwarder())
    step = passage.enter(b"request", _path(1), 32, NODES[1:2], 0.0)
    assert (step.way, step.to) == (PassageAction.FORWARD, NODES[1])
    assert other.take(b"request", IDLE, 0.1).way is PassageAction.SERVE
    # A dishonest node takes the mark off, or sends it on: whoever had it refuses.
    assert passage.enter(b"request", _path(1), 32, NODES, 0.2).way is PassageAction.CIRCLE
    assert passage.take(b"request", IDLE, 0.2).way is PassageAction.CIRCLE
    assert other.take(b"request", IDLE, 0.3).way is PassageAction.CIRCLE
    assert passage.enter(b"request", _path(1), 32, NODES, MEMORY + 1).way is not PassageAction.CIRCLE


def test_a_busy_answer_leads_to_one_other_choice_and_then_to_a_refusal() -> None:
    passage, full = Passage("entry", _forwarder()), NodeLoad(latency=2.0, queued=80, running=8, capacity=8)
    step, asked = passage.enter(b"request", _path(1), 32, NODES, 0.0), []
    while step.way is PassageAction.FORWARD:
        asked.append(step.to)
        step = passage.busy(b"request", step.to, full, 1.0)
    assert len(asked) == len(set(asked)) == CHOICES
    assert step.way is PassageAction.OVERLOADED
    assert step.retry_after >= 1.0
    assert (
        passage.enter(b"request", _path(1), 32, NODES, 2.0).way is PassageAction.FORWARD
    )  # Refused is not served: it may return.
    assert passage.busy(b"request", "somebody else", full, 2.0).way is PassageAction.CIRCLE


def test_a_full_node_answers_busy_by_its_own_count() -> None:
    passage = Passage(NODES[0], _forwarder())
    full = NodeLoad(latency=3.0, queued=56, running=8, capacity=8)
    step = passage.take(b"request", full, 0.0)
    assert (step.way, step.retry_after) == (PassageAction.OVERLOADED, 21.0)
    assert passage.take(b"request", IDLE, 1.0).way is PassageAction.SERVE
    assert retry_after(NodeLoad(latency=1e9, queued=9)) == 60.0


def test_an_answered_request_is_no_load_any_more() -> None:
    forwarder = _forwarder()
    passage = Passage("entry", forwarder)
    step = passage.enter(b"request", _path(1), 32, NODES[:1], 0.0)
    assert forwarder.standings([step.to], 0.5)[0].active == 1
    passage.ended(b"request", 1.0, 1.0)
    passage.ended(b"request", 1.0, 1.0)
    assert forwarder.standings([step.to], 1.0)[0].active == 0
