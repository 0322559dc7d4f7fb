"""What processes that run for months remember is bounded: by how long it matters, or by a number."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from troth.cases import carrying
from troth.cases import parties as case_parties
from troth.cases.carrying import Carrier, CaseProgress
from troth.cases.parties import ChannelParties
from troth.client.orders import errands, keeping, resuming
from troth.client.orders.court import Court
from troth.client.orders.errands import Backoff
from troth.client.orders.keeping import OrderKeeper
from troth.committee.rating import turns as committee_turns
from troth.committee.rating.store import Equivocation
from troth.committee.rating.turns import EpochTurns
from troth.node.court import bringing
from troth.node.court.bringing import Bringer
from troth.node.direct import scheduler_side
from troth.node.direct.scheduler_side import SchedulerSide
from troth.node.errors import NodeError
from troth.overlay.paths.pace import FORGOTTEN_SECONDS, Attempts, CircuitPace
from troth.protocol.types import Address, Hash32
from troth.scheduler.nodes import peers as node_peers
from troth.scheduler.nodes.peers import NodeContact, Peers
from troth.scheduler.tabs.opening import TabOpener

NOTHING: Any = None


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def address(number: int) -> Address:
    return Address(f"0x{number:040x}")


class ToyChannel:
    """A channel that never connects; how many of them are open."""

    open_now = 0

    def __init__(self, endpoint: str, tls_key_hash: bytes, *_: Any, **__: Any) -> None:
        self.endpoint, self.tls_key_hash, self.idle, self.connected = endpoint, tls_key_hash, True, True
        ToyChannel.open_now += 1

    def leads_to(self, endpoint: str, tls_key_hash: bytes) -> bool:
        return (endpoint, tls_key_hash) == (self.endpoint, self.tls_key_hash)

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        ToyChannel.open_now -= 1


@pytest.fixture(autouse=True)
def none_open() -> None:
    ToyChannel.open_now = 0


# ------------------------------------------------------------------------------------------------------------- clients


def test_a_backoff_forgets_what_nobody_tries_any_more() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    for number in range(1_000):
        backoff.put_off(name(number))
    now = 3.0
    for _ in range(20):
        backoff.put_off(name(0))
    backoff.forget()
    assert not backoff.is_time(name(0))
    now += errands.LONGEST_BACKOFF
    assert backoff.is_time(name(0))
    backoff.put_off(name(0))
    now += errands.LONGEST_BACKOFF - 1
    assert not backoff.is_time(name(0)), "the longest rest again, since it was tried as soon as it could be"
    now += errands.FORGOTTEN_SECONDS + 1
    backoff.put_off(name(1))
    backoff.forget()
    assert list(backoff._put_off) == [name(1)]


def test_what_fails_for_days_rests_a_minute_each_time() -> None:
    now = 0.0
    backoff = Backoff(lambda: now)
    for _ in range(3_000):
        backoff.put_off(name(0))
    now = errands.LONGEST_BACKOFF - 1
    assert not backoff.is_time(name(0))
    now = errands.LONGEST_BACKOFF
    assert backoff.is_time(name(0))


class Lines:
    """An objector that has a new line each time."""

    def __init__(self) -> None:
        self.number = 0

    async def look(self, _session: Any, _record: Any) -> list[str]:
        self.number += 1
        return [f"line {self.number}", "the same line"]


async def test_a_keeper_forgets_orders_claims_and_lines_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "LINES_REMEMBERED", 50)
    record = SimpleNamespace(identifier=b"tab")
    tab = SimpleNamespace(claim=object())
    books = SimpleNamespace(all=lambda _: [], record=lambda _: record)
    session: Any = SimpleNamespace(block=0, books=books, domain=None, state=SimpleNamespace(tabs={b"tab": tab}))
    said: list[str] = []
    objector: Any = Lines()
    keeper = OrderKeeper(session, report=lambda _, line: said.append(line), objector=objector)
    for block in range(3_000):
        session.block = block
        keeper._resumer.unknown[name(block)] = block
        keeper._looked[name(block)] = block
        keeper._watch_claim(record)  # type: ignore[arg-type]
        await keeper.once()
    assert len(keeper._resumer.unknown) <= resuming.FORGOTTEN_BLOCKS + 1
    assert len(keeper._looked) <= 2
    assert len(keeper._told) <= 50
    assert len(said) > 3_000
    assert said[:2] == ["line 1", "the same line"]


async def test_a_court_forgets_cases_that_are_over() -> None:
    ended = SimpleNamespace(words="over", over=True)
    carrier = SimpleNamespace(tick=lambda _: asyncio.sleep(0, ended))
    journal = SimpleNamespace(case=lambda _: SimpleNamespace(evidence=SimpleNamespace(order_id=b"order")))
    told: list[CaseProgress] = []
    office: Any = SimpleNamespace(carrier=carrier, journal=journal)
    court = Court(office, NOTHING, 0, tell=lambda _, progress: told.append(progress))
    for number in range(100):
        await court._tick(Hash32(name(number)))
    assert (len(told), len(court._told), len(court._locks)) == (100, 0, 0)


# --------------------------------------------------------------------------------------------------------------- cases


async def test_a_driver_forgets_whom_it_furnished_in_cases_that_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "_with_rows", lambda *_: None)
    running: list[Hash32] = []
    journal: Any = SimpleNamespace(cases=lambda: tuple(running), case=lambda _: SimpleNamespace(evidence="the whole"))
    parties: Any = SimpleNamespace(furnish=lambda *_: asyncio.sleep(0, True))
    carrier = Carrier(NOTHING, parties, journal)
    for number in range(100):
        running[:] = [Hash32(name(number))]
        look: Any = SimpleNamespace(
            record=SimpleNamespace(case_id=running[0]), state=SimpleNamespace(round=0, segment=0)
        )
        await carrier._furnish(look, address(1))
    assert [case for case, _, _ in carrier._furnished] == running


async def test_a_party_that_moves_leaves_one_connection_and_a_crowd_no_more_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(case_parties, "Channel", ToyChannel)
    listed: dict[Address, Any] = {}
    operator: Any = SimpleNamespace(address=address(0))
    parties = ChannelParties(operator, lambda: SimpleNamespace(parties=listed))  # type: ignore[arg-type, return-value]
    for number in range(50):
        listed[address(1)] = SimpleNamespace(endpoint=f"https://host:{number}", tls_key_hash=b"key")
        assert parties._channel(address(1)) is parties._channel(address(1))
    await asyncio.sleep(0)
    assert ToyChannel.open_now == 1
    for number in range(2, 300):
        listed[address(number)] = SimpleNamespace(endpoint="https://host:1", tls_key_hash=b"key")
        parties._channel(address(number))
    await asyncio.sleep(0)
    assert ToyChannel.open_now == case_parties.MOST_CHANNELS
    await parties.close()
    assert ToyChannel.open_now == 0


# --------------------------------------------------------------------------------------------------------------- nodes


async def test_a_bringer_forgets_rejections_that_are_offered_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now, failures = 0.0, 0

    async def fails(*_: Any, **__: Any) -> bool:
        nonlocal failures
        failures += 1
        raise NodeError("something new each time", failures, "Wait.")

    monkeypatch.setattr(Bringer, "_look", fails)
    context: Any = SimpleNamespace(clock=lambda: now)
    bringer = Bringer(context, NOTHING, NOTHING, most_bond=1, pause=0.0)
    for _ in range(100):
        assert not await bringer.rejected(SimpleNamespace(order=name(0), segment=0))  # type: ignore[arg-type]
    assert len(bringer._said[Hash32(name(0)), 0]) == bringing.SAYINGS
    for number in range(1, 1_000):
        now += 10.0
        await bringer.rejected(SimpleNamespace(order=name(number), segment=0))  # type: ignore[arg-type]
    assert len(bringer._looks) == len(bringer._said) == bringing.FORGOTTEN_SECONDS / 10.0


class ToyClient:
    """An HTTP client; which of them are closed."""

    closed: list[ToyClient]

    async def aclose(self) -> None:
        ToyClient.closed.append(self)


async def test_an_entry_closes_ways_to_schedulers_that_moved_once_they_carry_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ToyClient.closed = []
    monkeypatch.setattr(scheduler_side, "pinned_client", lambda *_: ToyClient())
    side = SchedulerSide(lambda: NOTHING)

    def at(number: int, port: int) -> Any:
        return SimpleNamespace(operator=address(number), endpoint=f"https://host:{port}", tls_key_hash=b"key")

    async with side._client(at(1, 1)) as first:
        async with side._client(at(1, 2)) as second:
            assert first is not second
        assert ToyClient.closed == [], "an answer is still under way over the first"
    assert ToyClient.closed == [first]
    async with side._client(at(1, 2)) as again:
        assert again is second
    for number in range(2, 200):
        async with side._client(at(number, 1)):
            pass
    assert len(side._ways) == scheduler_side.MOST_WAYS
    await side.close()
    assert len(ToyClient.closed) == len(set(ToyClient.closed)) == 200


async def test_whoever_moves_while_two_ask_at_once_leaves_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    ToyClient.closed = []
    monkeypatch.setattr(scheduler_side, "pinned_client", lambda *_: ToyClient())
    side = SchedulerSide(lambda: NOTHING)

    async def ask(port: int) -> None:
        scheduler: Any = SimpleNamespace(operator=address(1), endpoint=f"https://host:{port}", tls_key_hash=b"key")
        async with side._client(scheduler):
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(number // 3) for number in range(30)))
    assert len(ToyClient.closed) == 9
    await side.close()
    assert len(set(ToyClient.closed)) == 10


# ---------------------------------------------------------------------------------------------------------- schedulers


async def test_a_scheduler_forgets_nodes_that_serve_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_peers, "Channel", ToyChannel)
    now = 0.0
    operator: Any = NOTHING
    peers = Peers(operator, lambda _: NodeContact("https://host:1", b"key"), monotonic=lambda: now)
    nodes = [address(number) for number in range(50)]
    await peers.warm(nodes, 1.0)
    peers.note_draw(nodes, nodes)
    for node in nodes:
        peers.texts(node)
    await peers.warm([], 1.0)
    assert ToyChannel.open_now == 50, "a list that is empty for a moment costs nothing"
    peers.channel(nodes[1]).idle = False  # type: ignore[misc]
    now += node_peers.FORGOTTEN_SECONDS + 1
    await peers.warm(nodes[:1], 1.0)
    assert set(peers._known) == set(peers._texts) == set(peers._drawn) == set(peers._chosen) == set(nodes[:2])
    peers.channel(nodes[1]).idle = True  # type: ignore[misc]
    now += node_peers.FORGOTTEN_SECONDS + 1
    for _ in range(2):
        await peers.warm(nodes[:1], 1.0)
    assert ToyChannel.open_now == len(peers._wanted_at) == 1
    await peers.close()


async def test_an_opener_of_tabs_keeps_a_lock_only_while_somebody_holds_it() -> None:
    opener = TabOpener(NOTHING, NOTHING, NOTHING, NOTHING, deposits=NOTHING)
    lock = opener._lock(address(1))
    assert opener._lock(address(1)) is lock
    for number in range(100):
        async with opener._lock(address(number)):
            pass
    assert len(opener._locks) == 1


# ------------------------------------------------------------------------------------------------- overlay, committees


def test_a_pool_forgets_guards_of_which_nothing_was_heard_for_a_day() -> None:
    now = 0.0
    attempts = Attempts(CircuitPace(), random.Random(1), lambda: now)

    def fail(guard: int) -> None:
        path: Any = (SimpleNamespace(name=name(guard)),)
        attempts.blame(path, SimpleNamespace(position=1))  # type: ignore[arg-type]

    for _ in range(8):
        fail(0)
    attempts.succeeded(name(0))
    assert attempts._strikes[name(0)][0] == 7, "a guard that lets few circuits stand stays slow"
    for guard in range(1, 1_000):
        now += 1_000.0
        fail(guard)
        attempts.succeeded(name(10_000 + guard))
    assert len(attempts._strikes) <= FORGOTTEN_SECONDS / 1_000.0 + 1
    assert len(attempts._rests) <= 2


async def test_a_member_forgets_whom_it_tried_to_expel_with_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []
    store = SimpleNamespace(equivocations=lambda: iter(stored))
    moment: Any = SimpleNamespace(now=SimpleNamespace(state=SimpleNamespace(raters={address(1)})))
    submitted: list[Any] = []

    async def submit(call: Any) -> None:
        submitted.append(call)

    rater: Any = SimpleNamespace(store=store)
    monkeypatch.setattr(committee_turns.calls, "expel", lambda *found: found)
    turns = EpochTurns(rater, NOTHING, submit)
    for epoch in range(20):
        stored[:] = [Equivocation(address(1), epoch, Hash32(name(epoch)), NOTHING, NOTHING)]
        for _ in range(2):
            await turns._expel(moment)
    assert (len(submitted), len(turns._tried)) == (20, 1)
