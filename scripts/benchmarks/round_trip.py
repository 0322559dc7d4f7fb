"""The least that one hop can cost: a row's round trip over the channel, TLS and both signatures, to a peer process.

Hot, one after the other, and as a pipeline meets it: the peer computes for as long as half a model takes before it
answers. Both processes then find their caches cold and their cores asleep, which no protocol of ours can change.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import uvloop
from fastapi import FastAPI

from troth.protocol.typed_data import Domain
from troth.protocol.types import Address
from troth.protocol.wire import ORDER_REQUESTS, Dismiss, OrderReply, OrderRequest, Received
from troth.transport.channel import Channel
from troth.transport.channel_server import ChannelServer
from troth.transport.identity import Operator, create_identity
from troth.transport.server import TlsServer, serving

DOMAIN = Domain(31337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
NODE, SCHEDULER = Operator(b"\x01" * 32, DOMAIN), Operator(b"\x02" * 32, DOMAIN)
ROW_BYTES, ROUNDS, WARM_UP = 576 * 4, 120, 20
WEIGHTS = 64
"""Matrices of 576 x 1536 float32 that the computing peer reads: more than a cache holds, as a slice's weights are."""


def measure(model_seconds: float) -> float:
    """Median milliseconds of a round trip beyond the `model_seconds` that the peer computes in between."""
    ours, theirs = multiprocessing.Pipe()
    peer = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, model_seconds), daemon=True)
    peer.start()
    try:
        endpoint, pin = ours.recv()
        return uvloop.run(_ask(endpoint, pin))
    finally:
        peer.terminate()
        peer.join()


async def _ask(endpoint: str, pin: bytes) -> float:
    channel = await Channel.connect(endpoint, pin, SCHEDULER, NODE.address)
    request, row, samples = Dismiss(order=b"\x07" * 32), b"r" * ROW_BYTES, []
    for _ in range(WARM_UP + ROUNDS):
        begun = time.perf_counter()
        reply = await channel.request(request, row)
        whole = time.perf_counter() - begun
        assert isinstance(reply.header, Received)
        samples.append(whole * 1e3 - reply.header.positions / 1e6)
    await channel.close()
    return statistics.median(samples[WARM_UP:])


def _serve(pipe: Connection, model_seconds: float) -> None:
    torch.set_num_threads(1)
    weights = [torch.randn(1536, 576) for _ in range(WEIGHTS)]
    row = torch.randn(1, 576)

    def compute() -> int:
        begun = time.perf_counter_ns()
        while time.perf_counter_ns() - begun < model_seconds * 1e9:
            for matrix in weights:
                torch.nn.functional.linear(row, matrix)
        return time.perf_counter_ns() - begun

    async def echo(_sender: Address, _header: OrderRequest, payload: memoryview) -> tuple[OrderReply, bytes]:
        spent = await asyncio.to_thread(compute) if model_seconds else 0
        return Received(positions=spent), bytes(payload)

    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="troth-bench-") as folder:
            identity, app = create_identity(Path(folder) / "tls"), FastAPI()
            channels = ChannelServer(NODE, echo, lambda sender: sender == SCHEDULER.address, requests=ORDER_REQUESTS)
            channels.mount(app)
            server = TlsServer(app, identity, "127.0.0.1", 0, drain=channels.drain)
            async with serving(server):
                pipe.send((f"https://127.0.0.1:{server.port}", identity.spki_sha256))
                await asyncio.Event().wait()

    uvloop.run(run())
