"""The demo's parts: lanes of layers, and a way that takes time."""

from __future__ import annotations

import asyncio
import io
import time

import pytest
from rich.console import Console

from troth.demo.pool_play import lanes
from troth.testnet.distance import serve
from troth.testnet.ports import free_port


def test_lanes_show_what_is_hosted_what_is_coming_and_where_segments_end() -> None:
    lane = {"layer_milliseconds": 1.5, "round_trip_milliseconds": 40.0, "running": 1}
    shown = {
        "layers": 6,
        "ends": [2, 6],
        "nodes": [
            {"operator": "0xa", "slice": [0, 2], "planned": [0, 2], **lane},
            {"operator": "0xb", "slice": [0, 2], "planned": [2, 6], **lane},
            {"operator": "0xc", "slice": [2, 6], "planned": None, **lane},
        ],
    }
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(lanes(shown, {"0xa": "a1"}, {"0xa": "large"}))
    drawn = console.export_text()
    assert "·|···|" in drawn
    rows = [line for line in drawn.splitlines() if "40" in line]
    assert "██    " in rows[0]
    assert "██░░░░" in rows[1]
    assert "  ████" in rows[2]
    assert "a1" in rows[0]
    assert "large" in rows[0]


async def test_a_long_way_delays_bytes_and_keeps_their_order_and_their_end() -> None:
    seconds = 0.05

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    target = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = free_port()
    way = asyncio.create_task(serve(port, target.sockets[0].getsockname()[1], seconds))
    sent = bytes(range(256)) * 4000
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.01)
    else:
        pytest.fail("the way did not open")
    before = time.monotonic()
    writer.write(sent)
    writer.write_eof()
    got = await reader.read()
    assert got == sent
    assert time.monotonic() - before >= 2 * seconds
    writer.close()
    way.cancel()
    target.close()
