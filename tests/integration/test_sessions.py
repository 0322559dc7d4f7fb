"""Requests over four circuits of real relays to a destination, sealed end to end."""

from __future__ import annotations

import asyncio
import os

import pytest
from support.session_stage import kill, session_stage, whole

from troth.overlay.sessions.errors import Delivered, RequestFailed
from troth.overlay.sessions.messages import HttpRequest, ResponseHead


async def test_a_request_and_its_answer(tmp_path):
    async with session_stage(tmp_path) as stage:
        assert await whole(stage.session, "/hello", b"body") == b"/hello body"
        assert await whole(stage.session, "/again") == b"/again "


@pytest.mark.parametrize("size", [0, 1, 65_536, 300_000, 2_000_000])
async def test_long_requests_and_answers_arrive_whole(tmp_path, size):
    content = os.urandom(size)
    async with session_stage(tmp_path) as stage:
        assert await whole(stage.session, "/", content) == b"/ " + content


async def test_an_answer_longer_than_every_window_is_paced_by_its_reader(tmp_path):
    pieces = [os.urandom(50_000) for _ in range(160)]

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        for piece in pieces:
            await responder.body(piece)

    async with session_stage(tmp_path, serve) as stage:
        assert await whole(stage.session) == b"".join(pieces)
        assert not stage.circuits.replaced


async def test_pieces_arrive_one_by_one_as_they_are_written(tmp_path):
    written = asyncio.Queue()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        while (piece := await written.get()) is not None:
            await responder.body(piece)

    async with session_stage(tmp_path, serve) as stage:
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        for number in range(30):
            written.put_nowait(b"token %d" % number)
            assert await anext(response.body) == b"token %d" % number
        written.put_nowait(None)
        rest = [piece async for piece in response.body]
        assert b"".join(rest) == b""


async def test_many_requests_at_once(tmp_path):
    async with session_stage(tmp_path) as stage:
        answers = await asyncio.gather(*(whole(stage.session, f"/{number}") for number in range(12)))
        assert answers == [b"/%d " % number for number in range(12)]


async def test_hundreds_of_quick_requests_one_after_the_other(tmp_path):
    async with session_stage(tmp_path) as stage:
        for number in range(200):
            assert await whole(stage.session, f"/{number}") == b"/%d " % number
        (session,) = stage.destination.table.sessions.values()
        assert len(session.requests) <= 17


async def test_two_paths_die_in_the_middle_of_an_answer_and_it_arrives_whole(tmp_path):
    go_on = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        for number in range(20):
            await responder.body(b"%d " % number)
            if number == 9:
                await go_on.wait()
            await asyncio.sleep(0)

    async with session_stage(tmp_path, serve, relays=18) as stage:
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        got = b""
        while not got.endswith(b"9 "):
            got += await anext(response.body)
        await kill(stage.relay_of(0, 1))
        await kill(stage.relay_of(2, 2))
        go_on.set()
        got += b"".join([piece async for piece in response.body])
        assert got == b"".join(b"%d " % number for number in range(20))
        assert len(stage.circuits.replaced) == 2


async def test_one_path_dies_and_no_relay_is_left_for_another(tmp_path):
    async with session_stage(tmp_path) as stage:
        await kill(stage.relay_of(3, 0))
        assert await whole(stage.session, "/three") == b"/three "


async def test_too_few_paths_fail_the_request_and_say_that_it_was_not_delivered(tmp_path):
    async with session_stage(tmp_path) as stage:
        for path in range(2):
            await kill(stage.relay_of(path, 0))
        with pytest.raises(RequestFailed) as failure:
            await whole(stage.session, "/")
        assert failure.value.delivered is not Delivered.YES


async def test_a_destination_that_was_restarted_is_asked_again_on_the_same_circuits(tmp_path):
    async with session_stage(tmp_path) as stage:
        assert await whole(stage.session, "/before") == b"/before "
        stage.destination.close()
        assert not stage.destination.table.sessions
        assert await whole(stage.session, "/after") == b"/after "
        assert not stage.circuits.replaced


async def test_whoever_serves_breaks_off(tmp_path):
    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        await responder.body(b"half")
        raise ValueError("broken on purpose")

    async with session_stage(tmp_path, serve) as stage:
        with pytest.raises(RequestFailed) as failure:
            await whole(stage.session)
        assert failure.value.hop == "destination"
        assert failure.value.delivered is Delivered.YES


async def test_who_stops_reading_stops_the_work(tmp_path):
    stopped = asyncio.Event()

    async def serve(request, responder):
        await responder.head(ResponseHead(200, ()))
        try:
            while True:
                await responder.body(b"more")
                await asyncio.sleep(0.001)
        finally:
            stopped.set()

    async with session_stage(tmp_path, serve) as stage:
        response = await stage.session.request(HttpRequest("GET", "/", (), b""))
        await anext(response.body)
        await response.body.aclose()
        async with asyncio.timeout(60):
            await stopped.wait()
