"""What a proxy, a destination or a stranger gains by silence, excess and bad timing in a session: nothing."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.session_stage import session_stage, whole

from troth.overlay.relay.proxy import ProxySide
from troth.overlay.sessions import asking, carrying
from troth.overlay.sessions import destination as destinations
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.frames import FrameKind, PathKeys, encode_opening
from troth.overlay.sessions.handle import Handle
from troth.overlay.sessions.limits import SessionLimits
from troth.overlay.sessions.messages import HttpRequest, ResponseHead, encode_request, reply_id
from troth.overlay.sessions.opening import PathHandshake
from troth.overlay.sessions.reply import Reply
from troth.overlay.sessions.session import MOST_REQUESTS
from troth.overlay.sessions.sessions import SessionRotation
from troth.overlay.sessions.transport import OverlayTransport
from troth.overlay.sida import InboxLimits, Sender, Threshold, parse

SESSION = Threshold(4, 3)
SECONDS = 60.0


def swallow(monkeypatch, place):
    """A proxy that delivers what begins a request, and nothing that follows, and stays alive."""
    begin = ProxySide._begin
    begun = set()

    def swallowing(side, message):
        if side._switch is place.switch and side in begun:
            return
        begun.add(side)
        begin(side, message)

    monkeypatch.setattr(ProxySide, "_begin", swallowing)


async def test_a_proxy_that_swallows_acknowledgements_does_not_stop_an_answer(tmp_path, monkeypatch):
    """Twelve segments of 64 KiB fill the window, and each window waits for one acknowledgement."""
    for module in (carrying, asking):
        monkeypatch.setattr(module, "QUIET_SECONDS", 0.3)
    size = 80 * 65_536

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await responder.body(bytes(size))

    async with session_stage(tmp_path, serve) as stage:
        swallow(monkeypatch, stage.relay_of(1, 2))
        async with asyncio.timeout(SECONDS):
            assert len(await whole(stage.session)) == size


async def test_a_proxy_that_swallows_the_last_word_does_not_keep_the_destination_at_work(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "QUIET_SECONDS", 0.3)
    stopped = asyncio.Event()

    async def serve(request, responder):
        try:
            await responder.head(ResponseHead(200, ()))
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with session_stage(tmp_path, serve) as stage:
        # The first word of a request is said on path 1.
        swallow(monkeypatch, stage.relay_of(1, 2))
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        await response.body.aclose()
        async with asyncio.timeout(SECONDS):
            await stopped.wait()


async def test_a_destination_that_does_not_wait_for_its_reader_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(Reply, "_has_room", lambda reply: True)
    sent = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        for _ in range(100):
            await responder.body(b"x")
            await asyncio.sleep(0)
        sent.set()

    async with session_stage(tmp_path, serve) as stage:
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        await sent.wait()
        async with asyncio.timeout(SECONDS):
            while not stage.session._paths[0].circuit.carried > 100 * 512:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        async def read():
            async for _ in response.body:
                await asyncio.sleep(0.01)

        with pytest.raises(RequestFailed) as failure:
            await read()
        assert failure.value.hop == "destination"
        assert failure.value.delivered is Delivered.YES


async def test_two_requests_that_find_the_destination_restarted_open_their_path_once(tmp_path):
    async with session_stage(tmp_path) as stage:
        await whole(stage.session)
        path = stage.session._paths[0]
        opened = path.id
        stage.session.renew(0, path, opened)
        stage.session.renew(0, path, opened)
        assert path.renewed
        assert not stage.session._repairs
        for table in (stage.destination.table,):
            for session in list(table.sessions.values()):
                table.end(session)
        assert await asyncio.gather(*(whole(stage.session, f"/{n}") for n in range(6))) == [
            b"/%d " % n for n in range(6)
        ]
        assert not stage.circuits.replaced


@pytest.mark.parametrize("header", [("x-name", "\u2603"), ("x-\u00e9", "1"), ("Content-Encoding", "gzip")])
async def test_headers_that_were_not_asked_for_fail_the_request_and_leave_nothing_behind(tmp_path, header):
    async def serve(request, responder):
        await responder.head(ResponseHead(200, (header,)))
        await responder.body(b"never shown")

    async with session_stage(tmp_path, serve) as stage:
        sessions = SessionRotation(stage.circuits, lambda: stage.listed)
        sessions._session = stage.session
        async with httpx.AsyncClient(transport=OverlayTransport(sessions), base_url="https://scheduler") as client:
            with pytest.raises(RequestFailed) as failure:
                await client.get("/")
        assert failure.value.hop == "destination"
        assert not stage.session.busy


async def test_what_latin_headers_say_arrives(tmp_path):
    async def serve(request, responder):
        await responder.head(ResponseHead(200, (("x-name", "caf\u00e9"),)))

    async with session_stage(tmp_path, serve) as stage:
        sessions = SessionRotation(stage.circuits, lambda: stage.listed)
        sessions._session = stage.session
        async with httpx.AsyncClient(transport=OverlayTransport(sessions), base_url="https://scheduler") as client:
            assert (await client.get("/")).headers["x-name"] == "caf\u00e9"


async def test_many_answers_at_once_break_no_circuit_and_one_too_many_is_free(tmp_path):
    go_on = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await go_on.wait()
        await responder.body(request.body[:5])

    async with session_stage(tmp_path, serve) as stage:
        begun = [
            await stage.session.request(HttpRequest("POST", "/", (), b"%5d" % n + bytes(200_000 * (n < 3))))
            for n in range(MOST_REQUESTS)
        ]
        with pytest.raises(RequestFailed) as failure:
            await whole(stage.session)
        assert failure.value.delivered is Delivered.NO
        go_on.set()
        for n, response in enumerate(begun):
            assert b"".join([piece async for piece in response.body]) == b"%5d" % n
        assert not stage.circuits.replaced


async def test_a_cookie_does_not_tie_two_sessions_together(tmp_path):
    seen = []

    async def serve(request, responder):
        seen.append({name.lower() for name, _ in request.headers})
        await responder.head(ResponseHead(200, (("set-cookie", "who=you; Path=/"),)))

    async with session_stage(tmp_path, serve) as stage:
        sessions = SessionRotation(stage.circuits, lambda: stage.listed)
        sessions._session = stage.session
        async with httpx.AsyncClient(transport=OverlayTransport(sessions), base_url="https://scheduler") as client:
            for _ in range(2):
                await client.get("/")
            assert not client.cookies
            await client.get("/", headers={"cookie": "who=you"})
    assert not any("cookie" in names for names in seen)


async def test_a_request_fails_as_soon_as_too_few_paths_are_left_for_what_follows():
    """Two paths ended after they had brought three segments: these are read, and nothing can follow them."""
    session = SimpleNamespace(threshold=SESSION, secret=os.urandom(32))
    request = asking.Asking(session, HttpRequest("GET", "/", (), b""))
    request._carriers = {2: None, 3: None}
    sender = Sender(SESSION, session.secret)
    sender.message_id = reply_id(request.id)
    segments = [[parse(wire) for wire in sender.send(b"x")] for _ in range(3)]
    for index in (0, 1):
        for cloves in segments:
            request.take(cloves[index], bytes((index,)), index)
    for cloves in segments:
        assert not request._over
        request.take(cloves[2], b"2", 2)
    assert request._over


async def test_a_session_that_cannot_be_followed_by_another_is_not_closed_twice(tmp_path):
    async with session_stage(tmp_path) as stage:
        sessions = SessionRotation(stage.circuits, lambda: stage.listed)
        stage.session.served = 10**6
        sessions._session = stage.session
        for _ in range(2):
            with pytest.raises(Exception, match="no relays are left"):
                await sessions.current()
        assert len(stage.circuits.held) == 4


# -- what strangers make a destination hold ---------------------------------------------------------------------------


class Stranger:
    """Anybody who knows the directory."""

    def __init__(self, destination, secret, threshold=SESSION):
        self.destination = destination
        self.opening = PathHandshake.new(os.urandom(32), 1000, threshold)
        self._keys = PathKeys(self.opening)
        self._sealed = self.opening.seal(secret.public_key().public_bytes_raw(), bytes(32))
        self._counter = 0

    async def say(self, plain: bytes):
        """The first answer, None if none comes at once."""
        self._counter += 1
        message = encode_opening(self._sealed, self._counter, self._keys.seal_frame(self._counter, plain))
        answers = self.destination.answers(message)
        asked = asyncio.create_task(anext(answers))
        for _ in range(5):
            await asyncio.sleep(0)
        if not asked.done():
            asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await answers.aclose()

    def sender(self) -> Sender:
        return Sender(self.opening.threshold, self.opening.session_secret)

    async def clove(self, wire: bytes) -> None:
        await self.say(bytes((FrameKind.CLOVE,)) + wire)


def lone(serve, limits):
    secret = X25519PrivateKey.generate()
    return Destination(bytes(32), secret, serve, limits, clock=lambda: 1000), secret


async def test_a_request_that_is_never_whole_is_counted_as_lost(monkeypatch):
    monkeypatch.setattr(destinations, "SWEEP_SECONDS", 0.05)
    destination, secret = lone(None, SessionLimits(inbox=InboxLimits(seconds=0.1, segment_bytes=65_536)))
    stranger = Stranger(destination, secret)
    await stranger.clove(stranger.sender().send(b"never whole", last=True)[0])
    sweeping = asyncio.create_task(destination.sweeping())
    async with asyncio.timeout(SECONDS):
        while destination.metrics.registry.get_sample_value("troth_overlay_lost_total") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)


async def test_long_requests_that_never_end_are_bounded_in_bytes():
    async def never(request, responder):
        raise AssertionError

    limits = SessionLimits(incomplete_bytes=300_000)
    destination, secret = lone(never, limits)
    for _ in range(10):
        stranger = Stranger(destination, secret, Threshold(1, 1))
        sender = stranger.sender()
        for _ in range(3):
            await stranger.clove(sender.send(bytes(50_000))[0])
    requests = [one for session in destination.table.sessions.values() for one in session.requests.values()]
    assert sum(len(one._body) for one in requests) <= 300_000
    assert len(requests) == 2


async def test_requests_that_are_ended_together_are_not_all_served():
    async def forever(request, responder):
        await asyncio.Event().wait()

    destination, secret = lone(forever, SessionLimits(requests=3))
    begun = []
    wire = encode_request(HttpRequest("GET", "/", (), b""))
    for _ in range(8):
        stranger = Stranger(destination, secret, Threshold(1, 1))
        sender = stranger.sender()
        await stranger.clove(sender.send(wire[:2])[0])
        begun.append((stranger, sender))
    for stranger, sender in begun:
        await stranger.clove(sender.send(wire[2:], last=True)[0])
    assert destination.table.running() == 3
    destination.close()


async def test_what_was_refused_as_busy_is_not_served_after_all():
    """Who heard BUSY is told that a retry is free: the cloves that come a moment later must start nothing."""
    served = []

    async def serve(request, responder):
        served.append(request.target)
        await asyncio.Event().wait()

    destination, secret = lone(serve, SessionLimits(requests=1))
    wire = encode_request(HttpRequest("GET", "/", (), b""))
    first = Stranger(destination, secret, Threshold(1, 1))
    await first.clove(first.sender().send(wire, last=True)[0])
    refused = Stranger(destination, secret, Threshold(3, 2))
    cloves = refused.sender().send(wire, last=True)
    await refused.clove(cloves[0])
    destination.table.end(destination.table.sessions[first.opening.session_secret])
    await asyncio.sleep(0)
    for clove in cloves[1:]:
        await refused.clove(clove)
    assert len(served) == 1
    destination.close()


async def test_requests_that_have_only_begun_keep_nobody_out():
    async def never(request, responder):
        raise AssertionError

    destination, secret = lone(never, SessionLimits(sessions=4))
    for _ in range(4):
        stranger = Stranger(destination, secret)
        await stranger.clove(stranger.sender().send(b"half")[0])
    newcomer = Stranger(destination, secret)
    await newcomer.clove(newcomer.sender().send(b"half")[0])
    assert newcomer.opening.session_secret in destination.table.sessions


async def test_answers_that_were_sent_and_not_acknowledged_do_not_use_up_a_session():
    served = []

    async def serve(request, responder):
        served.append(request.target)
        await responder.head(ResponseHead(200, ()))

    destination, secret = lone(serve, SessionLimits(requests_per_session=4))
    stranger = Stranger(destination, secret, Threshold(1, 1))
    wire = encode_request(HttpRequest("GET", "/", (), b""))
    for _ in range(40):
        await stranger.clove(stranger.sender().send(wire, last=True)[0])
    assert len(served) == 40
    session = next(iter(destination.table.sessions.values()))
    assert len(session.requests) <= 17


async def test_answers_of_many_sessions_that_nobody_acknowledges_are_bounded_in_bytes():
    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await responder.body(bytes(50_000))

    destination, secret = lone(serve, SessionLimits(kept_bytes=300_000))
    wire = encode_request(HttpRequest("GET", "/", (), b""))
    for _ in range(20):
        stranger = Stranger(destination, secret, Threshold(1, 1))
        await stranger.clove(stranger.sender().send(wire, last=True)[0])
    destination.table.sweep(asyncio.get_running_loop().time())
    kept = [one for session in destination.table.sessions.values() for one in session.requests.values()]
    assert 1 <= len(kept) <= 6
    assert sum(one.reply.held_bytes for one in kept) <= 300_000


async def test_a_handle_that_a_proxy_does_not_empty_holds_one_window():
    reply = Reply(bytes(16), Threshold(2, 1), os.urandom(32))
    keys = PathKeys(PathHandshake.new(os.urandom(32), 0, Threshold(2, 1)))
    slow = Handle(keys, 0, 1)
    reply.attach(slow)
    for number in range(500):
        await reply.first(b"x")
        reply.acknowledge(number + 1)
    await reply.end()
    assert len(slow._waiting) <= 64
    assert slow._waiting[-1][2]


def test_a_threshold_of_many_paths_does_not_multiply_what_a_destination_keeps():
    async def run():
        reply = Reply(bytes(16), Threshold(32, 1), os.urandom(32))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reply.write(bytes(2**20))
        return sum(len(clove) for sent in reply._sent for clove in sent.cloves)

    assert asyncio.run(run()) < 5 * 2**20
