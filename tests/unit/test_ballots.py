"""Ballots: a veiled class's log says what drawn verifiers found, and not who found it. Each lie about it is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import order_network
from support.market_record import SCHEDULER, line_of, posted, record
from support.market_scene import DOMAIN, KEYS, Scene
from support.order_network import Network
from support.tab_scene import Asked, TabScene

from troth.audit.checks import logs
from troth.audit.report import Finding, FindingKind
from troth.explorer.rows import work_rows
from troth.node.errors import BadInput, NotAssigned, OutOfOrder
from troth.protocol import rings, typed_data
from troth.protocol.errors import InvalidField
from troth.protocol.hashing import keccak256
from troth.protocol.market import ballots, log_data
from troth.protocol.market.ballots import Ballot, CastBallot
from troth.protocol.market.errors import InvalidCheck
from troth.protocol.market.heads import with_head
from troth.protocol.market.log_data import LoggedBallot, LoggedBallots, LogLine, written
from troth.protocol.market.signed import Opinion
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_market import Poll
from troth.scheduler.log.entries import is_final
from troth.scheduler.log.lines import line_of as logged_line

NAME = {"name": "torch cpu float32/veiled"}
SCENE = Scene(NAME)
OTHER = Hash32(keccak256(b"another"))
SECRETS = list(KEYS.values())


# ------------------------------------------------------------------------------------------------------- the protocol


def test_a_class_says_in_its_name_that_its_logs_name_nobody() -> None:
    for name in ("torch/veiled", "torch cpu float32/veiled/head:lm_head.weight"):
        assert ballots.is_veiled(name)
    for name in ("torch", "veiled", "torch/veiled/more", "torch/head:x/veiled", "torch/head:/veiled"):
        assert not ballots.is_veiled(name)


def test_verifiers_are_hidden_where_their_ballots_fit_into_a_line() -> None:
    for verifiers, most in ((3, 36), (5, 17), (15, 2)):
        assert ballots.hides_verifiers("torch/veiled", verifiers, most)
        assert not ballots.hides_verifiers("torch", verifiers, 1)
    for verifiers, segments in ((3, 37), (15, 3), (31, 1), (255, 1)):
        assert not ballots.hides_verifiers("torch/veiled", verifiers, segments)


@pytest.mark.parametrize(("verifiers", "segments"), [(3, 36), (7, 9), (15, 2)])
def test_the_longest_line_of_ballots_is_read_again(verifiers: int, segments: int) -> None:
    assert ballots.hides_verifiers("torch/veiled", verifiers, segments)
    cast = LoggedBallot(1, "0x" + "ff" * rings.signature_bytes(verifiers))
    every = tuple(
        LoggedBallots(segment, "0x" + "ff" * 33 * verifiers, (cast,) * verifiers) for segment in range(segments)
    )
    results = line_of(SCENE).results * segments
    data = log_data.encode_line(msgspec.structs.replace(line_of(SCENE), verdicts=(), ballots=every, results=results))
    assert len(data) <= log_data.LINE_LIMIT


def test_the_name_of_a_class_keeps_its_head_behind_the_veil() -> None:
    assert ballots.veiled("torch") == ballots.veiled("torch/veiled") == "torch/veiled"
    assert ballots.is_veiled(with_head(ballots.veiled("torch"), "lm_head.weight"))


def _place(number: int = 0) -> tuple[Hash32, int, Hash32]:
    return Hash32(keccak256(b"order %d" % number)), 0, Hash32(keccak256(b"result"))


def _cast(secret: bytes, ring: tuple[bytes, ...], opinion: Opinion = Opinion.ACCEPT, **changes: Any) -> CastBallot:
    order, segment, result = _place()
    ballot = replace(Ballot(order, segment, result, opinion), **changes)
    return ballots.cast(secret, ring, ballot, DOMAIN)


def _ring(count: int = 3) -> tuple[bytes, ...]:
    return rings.ring_of([rings.public_key(secret) for secret in SECRETS[:count]])


def test_ballots_of_drawn_verifiers_are_counted_by_tag() -> None:
    ring = _ring()
    cast = [_cast(SECRETS[0], ring), _cast(SECRETS[1], ring, Opinion.REJECT), _cast(SECRETS[2], ring)]
    opinions = ballots.count(cast, ring, _place(), drawn=ballots.members_of(ring), domain=DOMAIN)
    assert sorted(opinions.values()) == [Opinion.ACCEPT, Opinion.ACCEPT, Opinion.REJECT]
    assert set(opinions) == {one.tag for one in cast}


def test_one_verifier_cannot_vote_twice() -> None:
    ring = _ring()
    for second in (Opinion.ACCEPT, Opinion.REJECT):
        with pytest.raises(InvalidCheck, match="two ballots"):
            ballots.count(
                [_cast(SECRETS[0], ring), _cast(SECRETS[0], ring, second)],
                ring, _place(), drawn=ballots.members_of(ring), domain=DOMAIN,
            )  # fmt: skip


@pytest.mark.parametrize(
    "cast",
    [
        lambda ring: _cast(SECRETS[0], ring, order=OTHER),
        lambda ring: _cast(SECRETS[0], ring, segment=1),
        lambda ring: _cast(SECRETS[0], ring, result=OTHER),
        lambda ring: replace(_cast(SECRETS[0], ring), opinion=Opinion.REJECT),
        lambda _ring: _cast(SECRETS[4], _five()),
        lambda ring: replace(_cast(SECRETS[0], ring), signature=b""),
        lambda ring: ballots.cast(SECRETS[0], ring, Ballot(*_place(), Opinion.ACCEPT), replace(DOMAIN, chain_id=1)),
    ],
)  # fmt: skip
def test_a_ballot_of_elsewhere_or_of_nobody_is_refused(cast: Callable[[tuple[bytes, ...]], CastBallot]) -> None:
    """Another order, segment, result, opinion, ring and deployment."""
    ring = _ring()
    with pytest.raises(InvalidCheck):
        ballots.count([cast(ring)], ring, _place(), drawn=ballots.members_of(ring), domain=DOMAIN)


def _five() -> tuple[bytes, ...]:
    return _ring(5)


def test_a_ring_with_a_stranger_counts_nothing() -> None:
    ring = _ring()
    with pytest.raises(InvalidCheck, match="not drawn"):
        ballots.count([_cast(SECRETS[0], ring)], ring, _place(), drawn=ballots.members_of(ring)[1:], domain=DOMAIN)


def test_a_ring_travels_in_one_form() -> None:
    ring = _ring()
    data = b"".join(ring)
    assert rings.ring_in(memoryview(data)) == ring
    for other in (b"", data[:-1], data[33:] + data[:33], data + data[-33:], data[:33]):
        with pytest.raises(InvalidField):
            rings.ring_in(other)


# ------------------------------------------------------------------------------------------------------------ the log


@cache
def honest() -> LogLine:
    return veiled(line_of(SCENE))


def veiled(line: LogLine, *, opinions: tuple[Opinion, ...] = ()) -> LogLine:
    """The same line with ballots in place of verdicts."""
    names = [log_data.read_address(said.verifier) for said in line.verdicts]
    ring = rings.ring_of([rings.public_key(KEYS[name]) for name in names])
    order, result = log_data.read_hash(line.order), log_data.read_hash(line.results[0].result)
    said = opinions or tuple(Opinion(one.opinion) for one in line.verdicts)
    cast = [
        ballots.cast(KEYS[name], ring, Ballot(order, 0, result, opinion), DOMAIN)
        for name, opinion in zip(names, said, strict=True)
    ]
    return msgspec.structs.replace(line, verdicts=(), ballots=(_logged(ring, cast),))


def _logged(ring: tuple[bytes, ...], cast: list[CastBallot]) -> LoggedBallots:
    shown = tuple(LoggedBallot(int(one.opinion), written(one.signature)) for one in sorted(cast, key=lambda it: it.tag))
    return LoggedBallots(0, written(b"".join(ring)), shown)


def examined(line: LogLine, changes: dict[str, Any] = NAME) -> list[Finding]:
    data = log_data.encode_data([line])
    subject = record(posted(data), changes=changes)
    assert not subject.history.contradictions
    reports = logs.examine(subject, logs.ServedLogs(SCHEDULER, {1: data}, {}))
    return [found for report in reports for one in report.results for found in one.findings]


def test_an_honest_veiled_log_is_clean_and_names_no_verifier() -> None:
    line = honest()
    assert examined(line) == []
    data = log_data.encode_line(line)
    assert log_data.decode_line(data) == line
    # The accounts of the ring are there for who looks, but no verdict stands beside any of them.
    assert b'"verifier"' not in data
    rows = work_rows(SCHEDULER, 1, [line])
    assert {row[-1] for row in rows if row[5] == "check"} == {"veiled"}
    assert len(rows) == 1 + len(log_data.ballots_in(line)[0].ballots)


def test_a_line_without_ballots_has_the_bytes_that_it_had() -> None:
    assert b"ballots" not in log_data.encode_line(line_of(Scene()))


def test_the_promised_leaf_is_that_of_the_line_before_anybody_spoke() -> None:
    silent = msgspec.structs.replace(honest(), secret="", ballots=msgspec.UNSET)
    assert log_data.promised_leaf(honest()) == log_data.leaf_of(log_data.encode_line(silent))


def bent(change: Callable[[LoggedBallots], dict[str, Any]]) -> LogLine:
    one = log_data.ballots_in(honest())[0]
    return msgspec.structs.replace(honest(), ballots=(msgspec.structs.replace(one, **change(one)),))


def _other(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: {"ballots": one.ballots[1:]},
        lambda one: {"ballots": ()},
        lambda one: {"ballots": (one.ballots[0], *one.ballots)},
        lambda one: {"ballots": one.ballots[::-1]},
        lambda one: {"ballots": (LoggedBallot(2, one.ballots[0].signature), *one.ballots[1:])},
        lambda one: {"ballots": (LoggedBallot(1, _other(one.ballots[0].signature)), *one.ballots[1:])},
        lambda one: {"ballots": (LoggedBallot(9, one.ballots[0].signature), *one.ballots[1:])},
        lambda one: {"ring": one.ring[:-66]},
        lambda one: {"ring": _other(one.ring)},
        lambda one: {"ring": "0x"},
        lambda one: {"segment": 1},
    ],
)
def test_every_lie_about_ballots_is_found(change: Callable[[LoggedBallots], dict[str, Any]]) -> None:
    findings = examined(bent(change))
    assert {finding.check for finding in findings} == {"M16"}
    assert all(finding.kind is FindingKind.CHEATED for finding in findings)


def test_a_ring_of_the_scheduler_s_own_keys_is_found() -> None:
    """The scheduler signs for verifiers that it made up, beside one that was drawn."""
    line = line_of(SCENE)
    own = [SECRETS[-1], SECRETS[-2], KEYS[log_data.read_address(line.verdicts[0].verifier)]]
    ring = rings.ring_of([rings.public_key(secret) for secret in own])
    order, result = log_data.read_hash(line.order), log_data.read_hash(line.results[0].result)
    cast = [ballots.cast(secret, ring, Ballot(order, 0, result, Opinion.ACCEPT), DOMAIN) for secret in own]
    findings = examined(msgspec.structs.replace(line, verdicts=(), ballots=(_logged(ring, cast),)))
    assert any("not drawn" in finding.message for finding in findings)


@pytest.mark.slow
def test_a_veiled_class_is_never_logged_by_name_nor_another_without() -> None:
    named = examined(line_of(SCENE))
    assert any("are named" in finding.message for finding in named)
    both = msgspec.structs.replace(honest(), verdicts=line_of(SCENE).verdicts[:1])
    assert any("are named" in finding.message for finding in examined(both))
    plain = examined(veiled(line_of(Scene())), {})
    assert any("is hidden" in finding.message for finding in plain)


@pytest.mark.slow
def test_a_rejection_by_ballots_that_nobody_brings_is_named() -> None:
    said = line_of(SCENE).verdicts
    line = veiled(line_of(SCENE), opinions=(Opinion.REJECT,) * len(said))
    assert log_data.is_rejected(line)
    findings = examined(line)
    assert [(finding.check, finding.kind) for finding in findings] == [("M16", FindingKind.INCONCLUSIVE)]
    few = examined(veiled(line_of(SCENE), opinions=(Opinion.REJECT, *(Opinion.ACCEPT,) * (len(said) - 1))))
    assert few == []


def test_who_cast_a_ballot_is_not_passed_over_for_silence_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = log_data.read_address(line_of(SCENE).verdicts[0].verifier)
    monkeypatch.setattr("troth.protocol.market.state.State.silent_in_check", lambda *_: (verifier,))
    assert examined(honest()) == []


# ------------------------------------------------------------------------------------------------------------ a node


@pytest.fixture
def network(tmp_path: Path) -> Network:
    return order_network.build(tmp_path, name="toy float32/veiled")


async def test_a_verifier_casts_one_ballot_whatever_ring_is_shown(network: Network) -> None:
    ordered = await network.serve()
    (drawn,) = network.drawn(ordered)
    verifier = next(iter(drawn.seats))
    node, header = network.nodes[verifier], Poll(ordered.order_id, 0)
    ring = _ring_of(network, tuple(network.nodes)[:4], verifier)
    with pytest.raises(OutOfOrder):
        await node.ask(header, b"".join(ring))
    _, verdict = await network.verify(ordered, 0, verifier)
    tags = set()
    for members in (ring, _ring_of(network, tuple(network.nodes)[4:7], verifier)):
        _, signature = await node.ask(header, b"".join(members))
        said = verdict.message
        ballot = Ballot(said.order, said.segment, said.result, said.opinion)
        cast = CastBallot(Opinion(said.opinion), bytes(signature))
        ballots.require_ballot(cast, members, ballot, order_network.DOMAIN)
        tags.add(cast.tag)
    assert len(tags) == 1
    strangers = rings.ring_of([rings.public_key(network.nodes[one].secret) for one in network.nodes if one != verifier])
    for data in (b"", b"".join(ring)[:-1], b"".join(ring[:1]), b"".join(strangers), bytes(8192)):
        with pytest.raises(BadInput):
            await node.ask(header, data)


def _ring_of(network: Network, names: tuple[Address, ...], own: Address) -> tuple[bytes, ...]:
    return rings.ring_of([rings.public_key(network.nodes[one].secret) for one in {*names, own}])


async def test_a_node_of_a_plain_class_casts_none(tmp_path: Path) -> None:
    network = order_network.build(tmp_path)
    ordered = await network.serve()
    verifier = next(iter(network.drawn(ordered)[0].seats))
    await network.verify(ordered, 0, verifier)
    with pytest.raises(NotAssigned, match="name who verified"):
        await network.nodes[verifier].ask(Poll(ordered.order_id, 0), b"")


# ------------------------------------------------------------------------------------------------------- a scheduler


async def _checked_by_several(scene: TabScene) -> Asked:
    """An order with more than one verifier: one node may have all three seats, and then it is named."""
    while True:
        asked = await scene.send(scene.asked())
        assert (await scene.show(asked))[-1]["complete"]
        history = scene.context.store.get(asked.order_id)
        assert history is not None
        if len(history.verdicts) >= rings.FEWEST:
            return asked


async def test_a_verifier_that_is_alone_is_named(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, name="toy float32/veiled", verifiers=1)
    scene.start()
    asked = await scene.send(scene.asked())
    await scene.show(asked)
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    line = logged_line(history, veiled=True)
    assert (len(line.verdicts), log_data.ballots_in(line)) == (1, ())
    assert not history.ballots
    await scene.stop()


async def test_a_scheduler_polls_its_verifiers_and_logs_no_name(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, name="toy float32/veiled")
    scene.start()
    asked = await _checked_by_several(scene)
    await scene.stop()
    # After a restart the ballots are still there.
    scene.start()
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    line = logged_line(history, veiled=True)
    (cast,) = log_data.ballots_in(line)
    assert line.verdicts == ()
    assert len(cast.ballots) == len(history.verdicts) >= 2
    given = [CastBallot(log_data.opinion_of(one), log_data.read_bytes(one.signature)) for one in cast.ballots]
    ring = rings.ring_in(log_data.read_bytes(cast.ring))
    place = (asked.order_id, 0, typed_data.struct_hash(history.results[0]))
    drawn = history.checks[0][-1].operators
    opinions = ballots.count(given, ring, place, drawn=drawn, domain=scene.domain)
    assert list(opinions) == sorted(opinions)
    before = dict(history.ballots)
    await scene.show(asked)
    assert history.ballots == before
    await scene.stop()


async def test_a_ballot_that_did_not_come_is_asked_for_again_before_the_log_is_posted(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, name="toy float32/veiled")
    scene.start()
    for node in scene.nodes.values():
        node.faults.refuses.add(Poll)
    asked = await _checked_by_several(scene)
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    assert not history.is_cast
    assert not history.ballots
    assert history in scene.book.lacking_ballots()
    assert not is_final(history, scene.ledger.state, scene.ledger.block, scene.ledger.parameters.lag)
    for node in scene.nodes.values():
        node.faults.refuses.clear()
    await scene.stop()
    # Also by a scheduler that was killed meanwhile.
    scene.start()
    await scene.orders.ask_again()
    await scene.orders.drain()
    history = scene.context.store.get(asked.order_id)
    assert history is not None
    assert history.is_cast
    assert history not in scene.book.lacking_ballots()
    assert is_final(history, scene.ledger.state, scene.ledger.block, scene.ledger.parameters.lag)
    await scene.stop()


async def test_a_verifier_that_casts_a_forged_ballot_is_left_out(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, name="toy float32/veiled")
    scene.start()
    for node in list(scene.nodes.values())[::2]:
        node.faults.opinion = Opinion.REJECT
        node.faults.ballot = Opinion.ACCEPT
    forged = 0
    while not forged:
        asked = await _checked_by_several(scene)
        history = scene.context.store.get(asked.order_id)
        assert history is not None
        accepting = {one for (_, one), said in history.verdicts.items() if said.message.opinion == Opinion.ACCEPT}
        assert {one for cast in history.ballots.values() for one in cast} == accepting
        forged = len(history.verdicts) - len(accepting)
    await scene.stop()
