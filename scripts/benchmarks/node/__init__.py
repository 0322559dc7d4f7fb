"""What Troth costs a node beside its engine for each token: board, signing, wire; its worker has no model."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.figures import Figure
from benchmarks.node.scene import DOMAIN, Plan, chain_of, operator_of, order_of
from troth.protocol.market.rows import RowHashes, verify_hashes, verify_rows
from troth.protocol.tensors import Dtype, row_size
from troth.protocol.types import Hash32
from troth.protocol.wire import Decoded
from troth.protocol.wire_decoding import DecodedPart, WantedText, WrittenPart, decode_parts, encode_wanted
from troth.protocol.wire_fields import DECODE_LIMIT
from troth.protocol.wire_market import Proceed
from troth.transport.channel import Channel

RATES = (5_000.0, 0.0)
BEFORE, REACH = 6_000.0, 60.0
"""Microseconds a sampled token."""
REACH_HELD = 5.0
"""Milliseconds."""
BEFORE_TOKENS, REACH_TOKENS = 200.0, 5_000.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds that passed, and the node's own account of its processor."""

    wall: float
    total: float
    bare: float
    spent: dict[str, float]
    held: float


def measure(options: Sequence[str] = ()) -> list[Figure]:
    """Figures for each rate."""
    parser = argparse.ArgumentParser(prog="scripts/bench node", description=__doc__)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256, help="of each sequence")
    parser.add_argument("--hidden", type=int, default=4_096)
    parser.add_argument("--rates", default=",".join(f"{rate:g}" for rate in RATES), help="rows a second; 0: no pause")
    parser.add_argument("--tolerant", action="store_true", help="a class of which rows travel, and not their hashes")
    asked = parser.parse_args(list(options))
    figures: list[Figure] = []
    for rate in map(float, asked.rates.split(",")):
        plan = Plan(asked.sequences, asked.tokens, asked.hidden, rate, exact=not asked.tolerant)
        figures += _figures(plan, asyncio.run(_run(plan)))
    return figures


def _figures(plan: Plan, measured: Measured) -> Iterator[Figure]:
    tokens = plan.sequences * plan.tokens
    each = {name: 1e6 * seconds / tokens for name, seconds in measured.spent.items()}
    total, bare = 1e6 * measured.total / tokens, 1e6 * measured.bare / tokens
    left = total - sum(each.values())
    parts = ", ".join(f"{name} {value:.0f}" for name, value in sorted(each.items(), key=lambda one: -one[1]))
    pace = "row hashes travel, " if plan.exact else "rows travel, "
    pace += f"{plan.rate:,.0f} rows a second" if plan.rate else "as fast as it takes them"
    where = f"{total:.0f} in all, {bare:.0f} bare hashing; of it {parts}, rest {left:.0f}"
    note = f"{plan.sequences} sequences, {pace}; {where}"
    name = f"processor a token beside the engine and bare hashing, d = {plan.hidden:,}"
    yield Figure(name, total - bare, "us", BEFORE, REACH, note)
    yield Figure("the longest that the event loop was held up", 1000 * measured.held, "ms", None, REACH_HELD, pace)
    if not plan.rate:
        name = "sampled tokens a second through one node's Troth parts (engine replaced)"
        yield Figure(name, tokens / measured.wall, "/s", BEFORE_TOKENS, REACH_TOKENS, "scheduler and worker beside it")


async def _run(plan: Plan) -> Measured:
    with _node(plan) as node:
        assert node.stdout is not None
        assert node.stdin is not None
        said = json.loads(await asyncio.to_thread(node.stdout.readline))
        place = f"https://127.0.0.1:{said['port']}"
        me, peer = operator_of("scheduler"), operator_of("node").address
        channel = await Channel.connect(place, bytes.fromhex(said["key"]), me, peer)
        began = await _follow(plan, channel)
        wall = time.perf_counter() - began
        node.stdin.write("enough\n")
        node.stdin.flush()
        account: dict[str, Any] = json.loads(await asyncio.to_thread(node.stdout.readline))
        await channel.close()
        return Measured(wall, account["total"], account["bare"], account["spent"], account["held"])


@contextmanager
def _node(plan: Plan) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.node.serving", json.dumps(asdict(plan))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield node
    finally:
        node.kill()
        node.wait()


async def _follow(plan: Plan, channel: Channel) -> float:
    """All sequences to their ends, every row and signature checked; when the first answer came."""
    began, checking = 0.0, asyncio.create_task(asyncio.sleep(0))
    going = {order_of(number): _Text(chain_of(plan, number), plan.prompt) for number in range(plan.sequences)}
    while going:
        wanted = [WantedText(order, text.position) for order, text in going.items()]
        frame = await channel.request(Proceed(len(wanted), DECODE_LIMIT), encode_wanted(wanted), 60.0)
        assert isinstance(frame.header, Decoded), frame.header
        began = began or time.perf_counter()
        parts = decode_parts(frame.payload, frame.header.texts)
        for part in parts:
            assert isinstance(part, WrittenPart), part
            going[part.order].position += len(part.tokens)
        await checking
        checking = asyncio.create_task(asyncio.to_thread(_check, plan, parts, dict(going)))
        for part in parts:
            if isinstance(part, WrittenPart) and part.finished:
                del going[part.order]
    await checking
    return began


def _check(plan: Plan, parts: Sequence[DecodedPart], going: dict[Hash32, _Text]) -> None:
    size, signer = row_size(plan.hidden, Dtype(plan.dtype)), operator_of("node").address
    for part in parts:
        assert isinstance(part, WrittenPart), part
        text = going[part.order]
        bound = (text.token, *part.tokens[:-1])
        if plan.exact:
            text.chain = verify_hashes(text.chain, part.rows, part.row, signer=signer, domain=DOMAIN)
        else:
            text.chain = verify_rows(text.chain, part.rows, size, part.row, signer=signer, domain=DOMAIN, tokens=bound)
        text.token = part.tokens[-1]


@dataclass(slots=True)
class _Text:
    chain: RowHashes
    position: int
    token: int = 7
