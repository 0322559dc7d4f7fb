"""A member that missed an update asks the others, over real TLS: they lie, send too much, or never answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from troth.chain.keystore import Key
from troth.committee.errors import EpochRefused, RequestRefused
from troth.committee.rating import requests as rating_requests
from troth.committee.rating.epochs import ExaminedList
from troth.committee.rating.evidence import KnownEvidence
from troth.committee.rating.missed import ADDED_UP, LISTED, missed_list, others_evidence
from troth.committee.rating.requests import LARGEST_REPLY, MemberCalls
from troth.committee.requests import announced_by_member
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import CommitteeMember
from troth.protocol.credit import MOST
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_ADDRESS, Address, Hash32, address_from_bytes
from troth.transport.identity import create_identity
from troth.transport.server import TlsServer

DOMAIN, EPOCH = Domain(31_337, ZERO_ADDRESS), 7
KEYS = [Key.from_secret(keccak256(b"troth missed %d" % number)) for number in range(4)]
NODES = [address_from_bytes(bytes([number]) * 20) for number in range(1, 6)]
LIST = ExaminedList(NODES, "0x" + "22" * 32)
SETTLED = Hash32(b"\x44" * 32)
NEVER, ENDLESS = b"never", b"endless"


@asynccontextmanager
async def asking(folder: Path, answers: list[bytes]) -> AsyncIterator[tuple[MemberCalls, list[tuple[str, bytes]]]]:
    """What one member asks three others that say this; and what they were asked."""
    membership = CommitteeMembership(DOMAIN, ())
    asked: list[tuple[str, bytes]] = []

    def app(answer: bytes) -> FastAPI:
        made = FastAPI()

        @made.post("/v1/reputation/{what}")
        async def say(what: str, request: Request) -> Response:
            kind = {"lists": LISTED, "sums": ADDED_UP}[what]
            announced_by_member(kind, request, membership)
            asked.append((kind, await request.body()))
            if answer == NEVER:
                await asyncio.sleep(3600)
            return StreamingResponse(endless()) if answer == ENDLESS else Response(answer)

        return made

    async with AsyncExitStack() as stack:
        members = [CommitteeMember(KEYS[3].address, Hash32(bytes(32)), "https://127.0.0.1:1")]
        for number, answer in enumerate(answers):
            identity = create_identity(folder / f"tls{number}")
            server = TlsServer(app(answer), identity, "127.0.0.1", 0)
            await server.start()
            stack.push_async_callback(server.stop)
            place = f"https://127.0.0.1:{server.port}"
            members.append(CommitteeMember(KEYS[number].address, Hash32(identity.spki_sha256), place))
        membership = CommitteeMembership.of(DOMAIN, tuple(members))
        yield MemberCalls(KEYS[3].secret, KEYS[3].address, lambda: membership), asked


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(2**16)
        await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds for whoever never answers, and one after the first answer."""
    monkeypatch.setattr(rating_requests, "SECONDS", {LISTED: 2.0, ADDED_UP: 2.0})
    monkeypatch.setattr(rating_requests, "GRACE", 1.0)


def encoded(examined: ExaminedList) -> bytes:
    return msgspec.json.encode(examined)


OTHER = encoded(ExaminedList(NODES[1:], LIST.prompt_root))
"""A list that leaves a node out."""


@pytest.mark.parametrize(
    "wrong",
    [OTHER, b"", b"[" * 20_000, b'{"nodes": 3}', b"\xff\xfe", encoded(ExaminedList(["0xnobody"])), NEVER, ENDLESS],
    ids=["a node left out", "nothing", "nested", "no list", "no text", "no address", "late", "endless"],
)
async def test_one_that_tells_the_truth_is_enough_whatever_the_others_send(tmp_path: Path, wrong: bytes) -> None:
    async with asking(tmp_path, [wrong, encoded(LIST), wrong]) as (others, asked):
        found = await asyncio.wait_for(missed_list(others, LIST.hash, EPOCH), 8)
    assert found == LIST
    assert asked == [(LISTED, bytes(LIST.hash))] * 3


async def test_a_list_that_nobody_shows_is_asked_for_again(tmp_path: Path) -> None:
    async with asking(tmp_path, [OTHER, NEVER, ENDLESS]) as (others, _):
        with pytest.raises(EpochRefused, match="nobody shows it"):
            await asyncio.wait_for(missed_list(others, LIST.hash, EPOCH), 8)


def sums(**changes: object) -> bytes:
    known = KnownEvidence(sums={str(NODES[0]): (20.0, 0.0), str(NODES[1]): (0.0, 3.0)})
    return msgspec.msgpack.encode(msgspec.structs.replace(known, **changes))


LIES = [
    sums(sums={}), sums(sums={str(NODES[2]): (MOST, MOST)}), sums(sums={str(NODES[0]): (float("nan"), 0.0)}),
    sums(sums={str(NODES[0]): (1e300, -1.0)}), sums(sums={"nobody": (1.0, 1.0)}), sums(judged=3), b"", b"\xff" * 90,
    sums(sums={str(address_from_bytes(n.to_bytes(20, "big"))): (1.0, 1.0) for n in range(1, 1030)}), NEVER, ENDLESS,
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
async def test_one_liar_among_three_changes_no_sum(tmp_path: Path, lie: bytes) -> None:
    members = [key.address for key in KEYS]
    async with asking(tmp_path, [sums(), lie, sums()]) as (others, asked):
        found = await asyncio.wait_for(others_evidence(others, SETTLED, EPOCH, members), 8)
    assert found == msgspec.structs.replace(msgspec.msgpack.decode(sums(), type=KnownEvidence), judged=0)
    assert asked == [(ADDED_UP, bytes(SETTLED))] * 3


async def test_one_word_is_not_enough_and_a_strangers_is_none(tmp_path: Path) -> None:
    async with asking(tmp_path, [sums(), NEVER, sums(judged=2)]) as (others, _):
        assert await others_evidence(others, SETTLED, EPOCH, [key.address for key in KEYS]) is None
    async with asking(tmp_path / "strangers", [sums(), sums(), sums()]) as (others, _):
        known: list[Address] = [KEYS[0].address, KEYS[3].address, NODES[0], NODES[1]]
        assert await others_evidence(others, SETTLED, EPOCH, known) is None


def test_replies_have_room_for_what_is_honest() -> None:
    many = [str(address_from_bytes(n.to_bytes(20, "big"))) for n in range(1, 1025)]
    assert len(encoded(ExaminedList(many[:256], LIST.prompt_root))) < LARGEST_REPLY[LISTED]
    assert len(sums(sums=dict.fromkeys(many, (0.1, 0.2)))) < LARGEST_REPLY[ADDED_UP]


def test_a_stranger_is_told_nothing() -> None:
    membership = CommitteeMembership.of(DOMAIN, (CommitteeMember(KEYS[0].address, Hash32(bytes(32)), "https://a"),))
    headers = rating_requests.requests.headers_of(LISTED, bytes(32), EPOCH, DOMAIN, KEYS[1].secret)
    scope = {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    with pytest.raises(RequestRefused, match="Only members"):
        announced_by_member(LISTED, Request(scope), membership)
