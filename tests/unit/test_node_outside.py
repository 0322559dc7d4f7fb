"""What `troth node doctor` learns from schedulers: over real TLS, bounded, and not steered by one of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from support.tab_scene import TabScene

from troth.node.configuration import NodeInitOptions, load
from troth.node.inspection import outside
from troth.node.inspection.outside import (
    SchedulerWord,
    ask_once_tried,
    ask_schedulers,
    clock_finding,
    gas_finding,
    outside_findings,
)
from troth.node.registration.setup import set_up
from troth.protocol.market.state import State
from troth.protocol.market.types import Role
from troth.protocol.types import Address, Hash32, to_address
from troth.scheduler.orders.nodes_seen import seen_of
from troth.transport.identity import load_identity, load_or_create_identity
from troth.transport.server import TlsServer, serving

OPERATOR = to_address("0x" + "12" * 20)
ANSWERS = {
    "good": b'{"connected": true, "drawn": 5, "chosen": 2, "why": [], "failure": "", "note": ""}',
    "away": b'{"connected": false, "drawn": 5, "chosen": 0, "why": ["it cannot be reached: refused"], '
    b'"failure": "refused"}',
    "huge": b'{"connected": true, "why": ["' + b"x" * 200_000 + b'"]}',
    "wrong": b'{"connected": "perhaps"}',
    "long": b'{"connected": true, "drawn": 1, "chosen": 1, "why": ["' + b"x" * 2000 + b'"]}',
    "no text": b'{"connected": true, "drawn": 1, "chosen": 1, "why": ["\xff"]}',
    "nested": b'{"more": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
}


@pytest.fixture(params=list(ANSWERS))
async def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The word of a scheduler that answers so."""
    identity, app = load_or_create_identity(tmp_path / "tls"), FastAPI()

    @app.get("/v1/nodes/{operator}")
    async def node(operator: str) -> Response:
        assert operator == OPERATOR
        return Response(ANSWERS[request.param])

    scene = TabScene(tmp_path)
    async with serving(TlsServer(app, identity, "127.0.0.1", 0)) as server:
        (party,) = [one for one in scene.ledger.state.parties.values() if one.role is Role.SCHEDULER]
        there = replace(party, endpoint=f"https://127.0.0.1:{server.port}", tls_key_hash=Hash32(identity.spki_sha256))
        state = replace(State(), parties=scene.ledger.state.parties.set(there.operator, there))
        yield request.param, await ask_schedulers(state, OPERATOR)


async def test_a_scheduler_is_asked_and_believed_within_bounds(asked: Any) -> None:
    kind, (word,) = asked
    if word.seen is not None or kind == "huge":
        assert abs(word.ahead) < 5, "both clocks are this machine's"
    assert (word.seen is not None) == (kind in {"good", "away"}), word.failure
    if kind == "good":
        assert word.seen.chosen == 2
    if kind == "huge":
        assert "too long" in word.failure


async def test_a_node_that_has_just_started_is_asked_after_until_it_was_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler tries again by itself: the first word is of the time before the node was up. Then it opens a tab."""
    monkeypatch.setattr(outside, "PAUSE", 0.01)
    refused, there = (json.loads(ANSWERS[kind]) for kind in ("away", "good"))
    unpaid = there | {"why": ["this scheduler has no tab with it yet, or an empty one"]}
    answers = [refused, refused, unpaid, there]

    async def asked(state: State, operator: Address) -> list[SchedulerWord]:
        seen = msgspec.convert(answers.pop(0), outside._SeenByScheduler)
        return [SchedulerWord(OPERATOR, seen, 0.0)]

    monkeypatch.setattr(outside, "ask_schedulers", asked)
    (word,) = await ask_once_tried(State(), OPERATOR, 0.0)
    assert word.seen is not None
    assert not word.seen.connected
    assert "See `outside`" in outside._chosen([word]).fix
    (word,) = await ask_once_tried(State(), OPERATOR, 5.0)
    assert word.seen is not None
    assert word.seen.connected
    assert word.seen.why == there["why"]
    assert answers == []


async def test_a_silent_scheduler_is_named(tmp_path: Path) -> None:
    (word,) = await ask_schedulers(TabScene(tmp_path).ledger.state, OPERATOR)
    assert word.seen is None
    assert word.failure


def word(ahead: float | None) -> SchedulerWord:
    return SchedulerWord(OPERATOR, None, ahead)


@pytest.mark.parametrize(
    ("behind", "ahead", "fine", "says"),
    [
        (2.0, [], True, "no scheduler"),
        (-60.0, [], False, "behind"),
        (2.0, [0.4, -0.2], True, "of 2 schedulers"),
        (2.0, [90.0, 91.0, 89.0], False, "ahead"),
        (2.0, [-90.0, -91.0], False, "behind"),
        (2.0, [0.1, 0.2, 100_000.0], True, "of 3"),
        (-60.0, [0.1], False, "behind"),
    ],
)
def test_a_clock_that_is_ahead_is_found(behind: float, ahead: list[float], fine: bool, says: str) -> None:
    found = clock_finding(behind, [word(one) for one in ahead])
    assert found.ok is fine
    assert says in found.seen + found.fix


@pytest.mark.parametrize(
    ("money", "sent", "days", "fine", "says"),
    [
        (10**18, 0, 0.0, True, "16,949,152 calls"),
        (10**18, 100, 10.0, True, "at 10 a day for 1,694,915 days"),
        (5_900_000_000_000, 100, 1.0, False, "for 1 days"),
        (0, 0, 0.0, False, "0 calls"),
        (590_000_000_000, 0, 0.5, True, "pays for 10 calls at 0.001 gwei"),
    ],
)
def test_gas_money_is_told_in_days(money: int, sent: int, days: float, fine: bool, says: str) -> None:
    found = gas_finding(OPERATOR, money, 10**6, sent, days)
    assert found.ok is fine, found
    assert says in found.seen


def configured(home: Path, endpoint: str) -> Any:
    password = home / "password"
    home.mkdir()
    password.touch(mode=0o600)
    password.write_text("secret")
    choices = NodeInitOptions(
        rpc="http://127.0.0.1:1", factory="0x" + "ab" * 20, execution_class="0x" + "11" * 32, model="m", slice="0:2",
        segments=("0:2",), host="127.0.0.1", port=1, endpoint=endpoint, device="cpu", threads=0, start_block=0,
    )  # fmt: skip
    set_up(home / "node", choices, None, password)
    return load(home / "node")


@pytest.mark.slow
def test_an_endpoint_other_than_on_chain_is_found(tmp_path: Path) -> None:
    configuration = configured(tmp_path / "a", "https://here.example:9443")
    scene = TabScene(tmp_path)
    node = next(iter(scene.nodes))
    parties, here = scene.ledger.state.parties, load_identity(configuration.tls_folder)
    party = replace(parties[node], endpoint="https://here.example:9443", tls_key_hash=Hash32(here.spki_sha256))
    for changed, fine in (
        (party, True),
        (replace(party, endpoint="https://there.example:9443"), False),
        (replace(party, tls_key_hash=Hash32(bytes(32))), False),
    ):
        state = replace(State(), parties=parties.set(node, changed))
        found = {one.check: one for one in outside_findings(configuration, state, node, [])}
        assert found["endpoint"].ok is fine, changed
        assert not found["outside"].ok, "nobody could be asked"
    assert outside_findings(configuration, State(), node, []) == [], "not registered yet"
    said = [SchedulerWord(OPERATOR, outside._SeenByScheduler(True, 0, 0, ["it is leaving"]), 0.0)]
    for exit_block, works in ((0, True), (9, False)):
        state = replace(State(), parties=parties.set(node, replace(party, exit_block=exit_block)))
        checks = {one.check for one in outside_findings(configuration, state, node, said)}
        assert ("work" in checks) is works


async def test_a_scheduler_says_why_a_node_gets_no_work_and_dials_nobody(tmp_path: Path) -> None:
    scene = TabScene(tmp_path, unpaid=1)
    scene.start()
    dialled: list[object] = []
    scene.peers.channel = dialled.append  # type: ignore[assignment]
    unpaid, paid = list(scene.nodes)[:2]
    assert "no tab" in seen_of(scene.context, unpaid)["why"][0]
    answer = (await scene.http.get(f"/v1/nodes/{paid}")).json()
    assert (answer["why"], answer["connected"], answer["drawn"]) == ([], True, 0)
    assert "in no draw" in answer["note"]
    assert "not registered" in seen_of(scene.context, OPERATOR)["why"][0]
    scene.peers.note_draw([paid, unpaid], [unpaid])
    assert "others that were drawn" in seen_of(scene.context, paid)["note"]
    assert (await scene.http.get("/v1/nodes/0x12")).status_code == 400
    assert dialled == []
    await scene.stop()
