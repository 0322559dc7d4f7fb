"""Who serves: the gate before the match, the published order beside it, and liars."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from support.prefixes import IDLE, naming, view_of, words
from support.published_forwarding import Published

from troth.routing.forwarding.dealings import TakenCounter
from troth.routing.forwarding.decision import Candidate, ChoiceReason, Policy
from troth.routing.forwarding.forwarder import Forwarder
from troth.routing.forwarding.gated import Gated
from troth.routing.prefixes.members import SILENCE
from troth.routing.prefixes.tree import Matches
from troth.routing.prefixes.update import LatencyAverage, NodeLoad

NAMING = naming()
NODES = [f"node {number}" for number in range(8)]


def _standing(slot: int, **load: float) -> Candidate:
    return Candidate(NODES[slot], slot, NodeLoad(**{"latency": 1.0, "capacity": 8, "pace": 0.001} | load))


def _choose(policy: Policy, matches: Matches, *standings: Candidate) -> tuple[str, ChoiceReason]:
    choice = policy.choose(matches, standings, random.Random(1))
    assert choice is not None
    return choice.name, choice.reason


def _forwarder(policy: Policy | None = None) -> Forwarder:
    return Forwarder(view_of(NODES, NAMING), policy or Gated(), random.Random(1))


def _path(*blocks: int) -> list[tuple[int, int]]:
    return list(NAMING.path(words(blocks)))


def test_the_average_is_smoothed_as_round_trips_are() -> None:
    average = LatencyAverage()
    for seconds in (8.0, 16.0, float("nan"), -1.0):
        average.add(seconds)
    assert average.seconds == 9.0
    assert NodeLoad(latency=2.0, queued=6, capacity=3).factor == 4.0


def test_among_open_nodes_the_longest_match_wins_and_of_equal_ones_the_shortest_wait() -> None:
    matches = Matches(((640, 0b001), (320, 0b111)), (2, 1))
    assert _choose(Gated(), matches, *map(_standing, range(3))) == (NODES[0], ChoiceReason.MATCH)
    equal = Matches(((640, 0b111),), (2,))
    waits = [_standing(slot, pending=pending) for slot, pending in enumerate((30, 10, 20))]
    assert _choose(Gated(), equal, *waits) == (NODES[1], ChoiceReason.MATCH)


def test_the_gate_comes_before_the_match() -> None:
    """A holder whose queue costs more than its match saves is passed over; the published text follows it for ever."""
    matches = Matches(((640, 0b001),), (2,))
    busy, idle = _standing(0, pending=5_000, queued=40, running=8), _standing(1)
    assert _choose(Gated(), matches, busy, idle) == (NODES[1], ChoiceReason.LOAD)
    assert _choose(Published(), matches, busy, idle) == (NODES[0], ChoiceReason.MATCH)
    assert _choose(Published(threshold=1.0), matches, busy, idle) == (NODES[1], ChoiceReason.FALLBACK)


def test_a_wait_shorter_than_what_the_match_saves_is_accepted() -> None:
    matches = Matches(((640, 0b001),), (2,))
    assert _choose(Gated(), matches, _standing(0, pending=1_200), _standing(1)) == (NODES[0], ChoiceReason.MATCH)


def test_a_miss_and_a_match_that_is_too_short_go_by_load() -> None:
    short = Matches(((32, 0b01),), (1,))
    assert _choose(Gated(), short, _standing(0, pending=100), _standing(1)) == (NODES[1], ChoiceReason.LOAD)
    assert _choose(Published(chunks=2), short, _standing(0, queued=2), _standing(1)) == (NODES[1], ChoiceReason.LOAD)


def test_where_the_gate_leaves_nobody_the_least_loaded_serves() -> None:
    dealt = [Candidate(NODES[slot], slot, IDLE, dealt=3.0) for slot in range(2)]
    choice = Gated(share_excess=-1.0).choose(Matches(), dealt, random.Random(1))
    assert choice is not None
    assert choice.reason is ChoiceReason.FALLBACK


def test_full_nodes_are_not_chosen_and_when_all_are_nobody_is() -> None:
    full = [_standing(slot, queued=64) for slot in range(2)]
    assert Gated().choose(Matches(((640, 0b11),), (2,)), full, random.Random(1)) is None
    assert Published().choose(Matches(), [], random.Random(1)) is None


def test_only_candidates_that_are_alive_and_trusted_are_chosen() -> None:
    forwarder = _forwarder()
    view = forwarder._view
    view.list_members(dict.fromkeys(NODES, 1.0) | {NODES[1]: 0.2}, 0.0)
    view.members[NODES[2]].alive = False
    for _ in range(20):
        choice = forwarder.choose(_path(1, 2, 3), 96, [*NODES[1:4], "a stranger", NODES[3]], 1.0)
        assert choice is not None
        assert choice.name == NODES[3]
    assert forwarder.choose(_path(1), 32, ["a stranger"], 1.0) is None


def test_what_was_sent_counts_before_the_node_says_so() -> None:
    forwarder = _forwarder()
    chosen = [forwarder.choose(_path(number), 3_200, NODES, 0.0) for number in range(1, 9)]
    assert {choice.name for choice in chosen if choice} == set(NODES)


def test_a_follow_up_goes_to_the_node_that_was_just_sent_its_prefix() -> None:
    forwarder = _forwarder()
    first = forwarder.choose(_path(*[1] * 20), 640, NODES, 0.0)
    again = forwarder.choose(_path(*[1] * 20, 2), 672, NODES, 0.1)
    assert first is not None
    assert again is not None
    assert (again.name, again.tokens, again.reason) == (first.name, 640, ChoiceReason.MATCH)


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["nothing to do", "fast as light"])
def test_a_node_that_claims_every_prefix_and_no_load_gets_no_more_than_its_share(lie: str) -> None:
    """It copies every name that others say and reports itself idle. The published policy gives it everything."""
    shares = {}
    for policy in (Gated(), Published()):
        forwarder, liar, ended = _forwarder(policy), NODES[0], []
        word = NodeLoad(capacity=8) if lie == "nothing to do" else NodeLoad(capacity=8, latency=1e-6, pace=0.0)
        served: Counter[str] = Counter()
        for number in range(2_000):
            now = number * 0.05
            path = _path(number % 17 + 1, number % 5 + 1, number + 100)
            forwarder._view.sent(liar, path, now)  # The claim: it holds all that will be asked for.
            forwarder.reported(liar, word, now)
            choice = forwarder.choose(path, 96, NODES, now)
            assert choice is not None
            served[choice.name] += 1
            ended.append((choice.name, now))
            if len(ended) > 20:
                forwarder.ended(*ended.pop(0), 1.0)
        shares[type(policy)] = served[liar] / (2_000 / len(NODES))
    assert shares[Gated] <= 1.15
    assert shares[Published] > 7


def _dealt_among_entries(words: dict[int, int], entries: int = 16, requests: int = 4_000) -> Counter[str]:
    """Requests of one prompt's kin that as many entries deal, each telling all what it took; `words` adds lies."""
    names = [f"node {number}" for number in range(entries)]
    forwarders = [
        Forwarder(view_of(names, NAMING), Gated(), random.Random(number), names[number]) for number in range(entries)
    ]
    served: Counter[str] = Counter()
    ended: list[tuple[int, str, float]] = []
    for number in range(requests):
        now, entry = number * 0.01, number % entries
        choice = forwarders[entry].choose(_path(1, 2, 3, number + 9), 128, names, now)
        assert choice is not None
        served[choice.name] += 1
        ended.append((entry, choice.name, now))
        if len(ended) > 20:
            over, name, _ = ended.pop(0)
            forwarders[over].ended(name, now, 0.2)
        if number % 50 == 0:
            for place, name in enumerate(names):
                taken = served[name] if place not in words else number * words[place]
                for forwarder in forwarders:
                    forwarder.reported(name, NodeLoad(1.0, capacity=8, pace=0.001, taken=taken), now)
    return served


@pytest.mark.slow
def test_many_entries_that_deal_little_each_do_not_flood_one_holder() -> None:
    served = _dealt_among_entries({})
    assert max(served.values()) <= 1.15 * 4_000 / 16


@pytest.mark.slow
@pytest.mark.parametrize("word", [0, 1_000])
def test_who_lies_about_what_it_took_moves_nobody_elses_share(word: int) -> None:
    """Three of sixteen say that they took nothing, or millions: the others' work stays spread."""
    liars = {0: word, 1: word, 2: word}
    served = _dealt_among_entries(liars)
    honest = [served[f"node {place}"] for place in range(3, 16)]
    assert max(honest) <= 1.2 * sum(honest) / 13
    # What each entry dealt itself still bounds those that deny all: a share, and two requests, over its mean.
    assert max(served[f"node {place}"] for place in liars) <= 1.4 * 4_000 / 16


def test_a_node_that_took_more_than_others_is_passed_over_and_who_enters_there_moves_later() -> None:
    matches = Matches(((640, 0b001),), (2,))
    others = [Candidate(NODES[slot], slot, IDLE, taken=60.0) for slot in (1, 2)]
    for taken, own, stays in ((64.0, False, True), (67.0, False, False), (67.0, True, True), (90.0, True, False)):
        holder = Candidate(NODES[0], 0, IDLE, taken=taken, own=own)
        assert (_choose(Gated(), matches, holder, *others)[0] == NODES[0]) is stays


def test_what_a_node_took_is_read_from_a_counter_that_rises() -> None:
    taken = TakenCounter()
    for word, now in ((2**32 - 3, 0.0), (2**32 - 1, 1.0), (4, 2.0)):  # The first counts nothing, then it wraps.
        taken.hear(word, now)
    assert taken.lately == 7.0
    taken.hear(2, 3.0)  # An older word that was overtaken.
    taken.hear(5, 4.0)
    assert taken.lately == 8.0
    taken.hear(0, 5.0 + SILENCE)  # Nothing as high for so long: it restarted.
    taken.hear(6, 6.0 + SILENCE)
    assert taken.lately == 14.0


def test_what_nodes_took_decays_and_is_no_less_than_we_dealt() -> None:
    forwarder = _forwarder()
    for taken in (100, 120):
        forwarder.reported(NODES[0], NodeLoad(capacity=8, taken=taken), 0.0)
    assert forwarder.standings(NODES[:1], 60.0)[0].taken == 10.0
    for number in range(30):
        forwarder.dealings.sent(NODES[1], 32, 60.0)
        forwarder.reported(NODES[1], NodeLoad(capacity=8, taken=0), 60.0 + number / 30)
    assert forwarder.standings(NODES[1:2], 61.0)[0].taken > 29


def test_a_node_cannot_say_that_it_took_less_than_we_sent_it() -> None:
    standing = Candidate("liar", 0, NodeLoad(capacity=8), in_flight=50)
    assert standing.active == 50
    assert Gated().choose(Matches(((9_999, 1),), (9,)), [standing, _standing(1)], random.Random(1)).name == NODES[1]


def test_a_conversation_stays_where_it_is_and_others_are_dealt_their_share() -> None:
    """Users come back to the node that answered them: that is no reason to send them away."""
    matches = Matches(((1_000, 0b11),), (9,))
    here, there = (Candidate(NODES[slot], slot, IDLE, dealt=500.0, own=slot == 0) for slot in range(2))
    assert _choose(Gated(), matches, here, there, _standing(2))[0] == NODES[0]


def test_what_a_draw_gives_to_a_full_node_is_counted_until_it_ends() -> None:
    """Who decides is the draw: a node that is full by its own word may have been drawn all the same."""
    forwarder, full = _forwarder(), NodeLoad(queued=99, capacity=8)
    forwarder.reported(NODES[0], full, 0.0)
    assert forwarder.choose(_path(1), 32, NODES[:1], 0.0) is None

    def there() -> int:
        (standing,) = forwarder.standings(NODES[:1], 0.3)
        return standing.in_flight

    assert forwarder.admitted(_path(1), 32, NODES[0], 0.1) == 0
    assert there() == 1
    forwarder.ended(NODES[0], 0.2)
    assert there() == 0
    assert forwarder.admitted(_path(1), 32, NODES[0], 0.3) == 32, "one that comes again has its prefix"
    assert forwarder.admitted(_path(1), 32, "a stranger", 0.3) is None
