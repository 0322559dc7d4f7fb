"""What proxies, coalitions of them, and strangers try on sessions over real relays."""

from __future__ import annotations

import asyncio
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from support.session_stage import session_stage, whole

from troth.overlay.cells.format import EndReason
from troth.overlay.relay.proxy import ProxySide
from troth.overlay.sessions import carrying
from troth.overlay.sessions.destination import Destination
from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.frames import FrameKind, PathKeys, encode_opening, parse_delivery
from troth.overlay.sessions.limits import SessionLimits
from troth.overlay.sessions.messages import HttpRequest, ResponseHead, encode_request
from troth.overlay.sessions.opening import PathHandshake, open_sealed
from troth.overlay.sida import InboxLimits, Sender, Threshold, parse
from troth.overlay.sida.errors import MalformedClove
from troth.transport.errors import OverlayError

SESSION = Threshold(4, 3)


class Proxy:
    """The last relay of one path, with its answers in the hands of its operator."""

    def __init__(self, monkeypatch, stage, path):
        self.place = stage.relay_of(path, 2)
        self.delivered: list[bytes] = []
        self.answered: list[bytes] = []
        self.change = lambda content, final: (content, final)
        original, begin = ProxySide.answered, ProxySide._begin

        def answered(side, number, content, *, final):
            if side._switch is self.place.switch:
                self.answered.append(content)
                changed = self.change(content, final)
                if changed is None:
                    return
                content, final = changed
            original(side, number, content, final=final)

        def begun(side, message):
            if side._switch is self.place.switch:
                self.delivered.append(message.content)
            begin(side, message)

        monkeypatch.setattr(ProxySide, "answered", answered)
        monkeypatch.setattr(ProxySide, "_begin", begun)


async def test_a_proxy_that_answers_in_the_destination_s_place_is_found_and_left(tmp_path, monkeypatch):
    async with session_stage(tmp_path, relays=15) as stage:
        proxy = Proxy(monkeypatch, stage, 1)
        proxy.change = lambda content, final: (os.urandom(len(content)), final)
        assert await whole(stage.session, "/true") == b"/true "
        assert await whole(stage.session, "/again") == b"/again "
        assert len(stage.circuits.replaced) == 1


@pytest.mark.parametrize("bit", [0, 7, 100])
async def test_a_flipped_bit_in_an_answer_costs_the_proxy_its_path_and_the_client_nothing(tmp_path, monkeypatch, bit):
    def flip(content, final):
        changed = bytearray(content)
        changed[bit % len(changed)] ^= 1
        return bytes(changed), final

    async with session_stage(tmp_path, relays=15) as stage:
        Proxy(monkeypatch, stage, 2).change = flip
        assert await whole(stage.session, "/x", b"y" * 5000) == b"/x " + b"y" * 5000
        assert await whole(stage.session, "/again") == b"/again "
        assert len(stage.circuits.replaced) == 1


async def test_a_proxy_cannot_repeat_or_swap_answers(tmp_path, monkeypatch):
    go_on = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await responder.body(b"first ")
        await go_on.wait()
        await responder.body(b"second")

    async with session_stage(tmp_path, serve, relays=15) as stage:
        proxy = Proxy(monkeypatch, stage, 0)
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        assert await anext(response.body) == b"first "
        repeated = proxy.answered[0]
        proxy.change = lambda content, final: (repeated, final)
        go_on.set()
        assert b"".join([piece async for piece in response.body]) == b"second"


async def test_a_proxy_that_ends_answers_early_is_replaced(tmp_path, monkeypatch):
    async with session_stage(tmp_path, relays=15) as stage:
        Proxy(monkeypatch, stage, 3).change = lambda content, final: (content, True)
        assert await whole(stage.session, "/whole") == b"/whole "
        assert await whole(stage.session, "/again") == b"/again "
        assert len(stage.circuits.replaced) == 1


async def test_a_proxy_that_swallows_answers_is_noticed_though_it_answers_pings(tmp_path, monkeypatch):
    monkeypatch.setattr(carrying, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr("troth.overlay.sessions.asking.QUIET_SECONDS", 1.0)
    replaced = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await responder.body(b"begun ")
        await replaced.wait()
        await responder.body(b"ended")

    async with session_stage(tmp_path, serve, relays=15) as stage:
        Proxy(monkeypatch, stage, 1).change = lambda content, final: None
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        assert await anext(response.body) == b"begun "
        async with asyncio.timeout(60):
            await stage.circuits.repaired.wait()
        replaced.set()
        assert b"".join([piece async for piece in response.body]) == b"ended"


async def test_a_repeated_delivery_starts_nothing_and_says_nothing(tmp_path, monkeypatch):
    served = []

    async def serve(request, responder):
        served.append(request.target)
        await responder.head(ResponseHead(200, ()))

    async with session_stage(tmp_path, serve) as stage:
        proxies = [Proxy(monkeypatch, stage, path) for path in range(4)]
        await whole(stage.session, "/once")
        for message in [message for proxy in proxies for message in proxy.delivered]:
            assert [answer async for answer in stage.destination.answers(message)] == [(b"", True)]
        assert served == ["/once"]


async def test_a_coalition_on_every_path_reads_nothing(tmp_path, monkeypatch):
    secret_words = b"the treasure is under the oak"
    async with session_stage(tmp_path) as stage:
        proxies = [Proxy(monkeypatch, stage, path) for path in range(4)]
        assert secret_words in await whole(stage.session, "/", secret_words * 40)
        seen = [part for proxy in proxies for part in (*proxy.delivered, *proxy.answered)]
        assert len(seen) >= 12
        for part in seen:
            assert b"treasure" not in part
            for start in range(min(len(part), 200)):
                with pytest.raises(MalformedClove):
                    parse(part[start:])
        # Nothing of eight bytes is common to what two proxies saw, but for version and counters.
        grams = [eights(proxy.delivered) for proxy in proxies]
        for left in range(4):
            for right in range(left):
                assert not grams[left] & grams[right]


def eights(messages: list[bytes]) -> set[bytes]:
    """Every eight bytes in a row of what deliveries say besides version and counter."""
    deliveries = [parse_delivery(message) for message in messages]
    parts = [part for one in deliveries for part in (one.opening, one.path_id, one.sealed)]
    return {part[at : at + 8] for part in parts for at in range(len(part) - 7)}


async def test_an_opening_is_worthless_at_another_destination(tmp_path):
    async with session_stage(tmp_path) as stage:
        opening = PathHandshake.new(os.urandom(32), 0, SESSION)
        sealed = opening.seal(stage.listed.seal_key, stage.listed.place.name)
        assert open_sealed(sealed, stage.secret, stage.listed.place.name) == opening
        for secret, name in ((X25519PrivateKey.generate(), stage.listed.place.name), (stage.secret, bytes(32))):
            with pytest.raises(OverlayError):
                open_sealed(sealed, secret, name)


def stranger(destination: Destination, secret: X25519PrivateKey, issued: int, session_secret: bytes | None = None):
    """Deliveries that anybody can make: who knows the directory can open sessions."""
    opening = PathHandshake.new(session_secret or os.urandom(32), issued, SESSION)
    keys = PathKeys(opening)
    sealed = opening.seal(secret.public_key().public_bytes_raw(), bytes(32))
    counter = 0

    def deliver(plain: bytes) -> bytes:
        nonlocal counter
        counter += 1
        return encode_opening(sealed, counter, keys.seal_frame(counter, plain))

    return opening, deliver


def lone(serve=None, limits=None, now=1000):
    secret = X25519PrivateKey.generate()

    async def nothing(request, responder):
        await responder.head(ResponseHead(200, ()))

    return Destination(bytes(32), secret, serve or nothing, limits, clock=lambda: now), secret


async def first(destination, message):
    """The first answer; the rest is cancelled, as when a proxy goes away."""
    answers = destination.answers(message)
    try:
        return await asyncio.wait_for(anext(answers), 0.2)
    except TimeoutError:
        return None
    finally:
        await answers.aclose()


async def test_sessions_that_are_opened_and_left_make_room_for_others():
    destination, secret = lone(limits=SessionLimits(sessions=8))
    for _ in range(40):
        _, deliver = stranger(destination, secret, 1000)
        await first(destination, deliver(bytes((FrameKind.CANCEL,)) + bytes(16)))
    assert len(destination.table.sessions) == 8


async def test_a_flood_of_openings_is_cut_off_before_it_costs_a_curve_operation():
    destination, secret = lone(limits=SessionLimits(openings_per_second=1, opening_burst=5))
    for _ in range(50):
        _, deliver = stranger(destination, secret, 1000)
        await first(destination, deliver(bytes((FrameKind.CANCEL,)) + bytes(16)))
    assert len(destination.table.sessions) <= 6
    assert destination.metrics.refused.labels("too_much")._value.get() >= 44


@pytest.mark.parametrize("issued", [0, 399, 1601, 2**60])
async def test_an_old_or_future_opening_is_refused(issued):
    destination, secret = lone(now=1000)
    _, deliver = stranger(destination, secret, issued)
    refusal = deliver(bytes((FrameKind.CANCEL,)) + bytes(16))
    assert await asyncio.wait_for(anext(destination.answers(refusal)), 60) == (b"", True)
    assert not destination.table.sessions


async def test_half_complete_requests_are_bounded_and_the_oldest_goes():
    limits = SessionLimits(requests_per_session=4, inbox=InboxLimits(messages=6, segment_bytes=65_536))
    destination, secret = lone(limits=limits)
    tasks = []
    for _ in range(4):
        opening, deliver = stranger(destination, secret, 1000)
        for _ in range(4):
            clove = Sender(SESSION, opening.session_secret).send(b"never whole", last=True)[0]
            answers = destination.answers(deliver(bytes((FrameKind.CLOVE,)) + clove))
            tasks.append(asyncio.create_task(anext(answers)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(len(session.requests) for session in destination.table.sessions.values()) == 6
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_session_cannot_hold_more_requests_than_its_share():
    destination, secret = lone(limits=SessionLimits(requests_per_session=2))
    opening, deliver = stranger(destination, secret, 1000)
    sender = [Sender(SESSION, opening.session_secret) for _ in range(5)]
    for one in sender:
        await first(destination, deliver(bytes((FrameKind.CLOVE,)) + one.send(b"half", last=True)[0]))
    assert sum(len(session.requests) for session in destination.table.sessions.values()) == 2


@pytest.mark.parametrize(("size", "is_served"), [(90_000, True), (400_000, False)])
async def test_a_request_beyond_the_limit_is_refused_while_it_comes(size, is_served):
    served = []

    async def serve(request, responder):
        served.append(len(request.body))
        await responder.head(ResponseHead(200, ()))

    destination, secret = lone(serve, SessionLimits(request_bytes=100_000))
    session_secret = os.urandom(32)
    # A segment takes one clove of each path.
    paths = [stranger(destination, secret, 1000, session_secret)[1] for _ in range(SESSION.k)]
    reading = []
    for cloves in Sender(SESSION, session_secret).cut(encode_request(HttpRequest("POST", "/", (), bytes(size)))):
        for deliver, clove in zip(paths, cloves, strict=False):
            reading.append(
                asyncio.ensure_future(anext(destination.answers(deliver(bytes((FrameKind.CLOVE,)) + clove))))
            )
            await asyncio.sleep(0)
    await asyncio.wait(reading, timeout=10)
    assert served == ([size] if is_served else [])
    assert (destination.metrics.refused.labels("too_much")._value.get() == 0) is is_served


async def test_an_answer_that_nobody_reads_ends_the_work(tmp_path):
    stopped = asyncio.Event()

    async def serve(request, responder):
        try:
            await responder.head(ResponseHead(200, ()))
            while True:
                await responder.body(bytes(65_536))
        finally:
            stopped.set()

    async with session_stage(tmp_path, serve, limits=SessionLimits(unattended_seconds=0.5)) as stage:
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        async with asyncio.timeout(60):
            await stopped.wait()
        with pytest.raises(RequestFailed) as failure:
            async for _ in response.body:
                pass
        assert failure.value.delivered is Delivered.YES


async def test_a_destination_that_cannot_be_reached_is_named(tmp_path):
    async with session_stage(tmp_path) as stage:
        await stage.overlay.server.stop()
        with pytest.raises(RequestFailed) as failure:
            await whole(stage.session)
        assert failure.value.hop in {"destination", "path"}
        assert EndReason.UNREACHABLE.name.lower() in failure.value.reason or failure.value.hop == "path"
