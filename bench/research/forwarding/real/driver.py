"""One run: seeded requests enter at seeded nodes, and the driver's clock says when tokens come."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from research.forwarding.real.messages import Ask, Begin, Counted, Failed, Refused, Written
from research.forwarding.real.nodes import NodeFailed, Nodes
from research.forwarding.real.workloads import ANSWER, WORKLOADS, Request, Session

SETTLED = 4.0
"""Seconds for which all must have the same names: longer than a change of them waits to be made."""
SETTLING = 120.0
REQUEST_SECONDS = 120.0
MOST_REFUSALS = 20
OTHER_ROUND = 100
"""Added to the seed for the prompts that the Sentries saw before."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One request's, in seconds since it was asked for the first time; `served`: the address of who wrote it."""

    number: int
    served: str
    first: float
    last: float
    refusals: int


@dataclass(frozen=True, slots=True)
class Played:
    """One policy on one workload: replies, the seconds from the first request to the last token, the nodes' counts."""

    workload: str
    policy: str
    replies: list[Reply]
    seconds: float
    counted: list[Counted]


async def play(
    nodes: Nodes, workload: str, policy: str, *, count: int, rate: float, seed: int, told: float = 0.0
) -> Played:
    """Empty caches, form a new group, send the requests, count.

    Args:
        count: requests.
        rate: requests a second on average, Poisson; a session's next turn waits for the answer.
        told: seconds that the nodes have at the end to tell what they hold.

    Raises:
        NodeFailed: a node ended or failed, or refuses for good.
    """
    sessions = WORKLOADS[workload](count, seed)
    await nodes.tell(Begin(policy, workload, seed + OTHER_ROUND))
    await _settle(nodes)
    begun = time.monotonic()
    replies = await _send(nodes, sessions, rate, seed)
    seconds = time.monotonic() - begun
    await asyncio.sleep(told)
    return Played(workload, policy, replies, seconds, await nodes.finish())


async def _settle(nodes: Nodes) -> None:
    """Wait until all hear all and have had the same names for a while."""
    deadline, since, before = time.monotonic() + SETTLING, time.monotonic(), b""
    while True:
        looks, now = await nodes.looks(), time.monotonic()
        alike = len({look.names for look in looks}) == 1 and all(look.alive == len(looks) - 1 for look in looks)
        if not alike or looks[0].names != before:
            since, before = now, looks[0].names
        elif now - since >= SETTLED:
            return
        if now > deadline:
            raise NodeFailed("the group does not come to the same names; is the machine very busy?")
        await asyncio.sleep(0.5)


async def _send(nodes: Nodes, sessions: Sequence[Session], rate: float, seed: int) -> list[Reply]:
    """Arrivals and entries depend on the seed only, so that they are the same for every policy."""
    requests = sum(map(len, sessions))
    gaps = np.random.default_rng(seed).exponential(requests / len(sessions) / rate, len(sessions))
    draw = random.Random(seed)  # noqa: S311
    entries = [draw.randrange(len(nodes.members)) for _ in range(requests)]
    replies: list[Reply] = []

    async def hold(session: Session, after: float) -> None:
        await asyncio.sleep(after)
        for request in session:
            await asyncio.sleep(request.pause)
            replies.append(await _ask(nodes, entries[request.number], request))

    try:
        async with asyncio.TaskGroup() as holding:
            for session, after in zip(sessions, np.cumsum(gaps).tolist(), strict=True):
                holding.create_task(hold(session, after))
    except* (NodeFailed, TimeoutError) as failures:
        failed = [str(failure) or "a request got no answer in time" for failure in failures.exceptions]
    else:
        return replies
    raise NodeFailed(failed[0])


async def _ask(nodes: Nodes, entry: int, request: Request) -> Reply:
    begun, refusals = time.monotonic(), 0
    async with asyncio.timeout(REQUEST_SECONDS):
        while refusals < MOST_REFUSALS:
            reply = await _answer(nodes, entry, request, begun, refusals)
            nodes.done(request.number)
            if isinstance(reply, Reply):
                return reply
            refusals += 1
            await asyncio.sleep(reply.retry_after)
    raise NodeFailed(f"request {request.number} was refused {refusals} times: ask for a lower --rate")


async def _answer(nodes: Nodes, entry: int, request: Request, begun: float, refusals: int) -> Reply | Refused:
    said = await nodes.ask(entry, Ask(request.number, request.prompt, ANSWER))
    first, tokens = 0.0, 0
    while True:
        message = await said.get()
        if isinstance(message, Failed):
            raise NodeFailed(message.reason)
        if isinstance(message, Refused):
            return message
        if not isinstance(message, Written):
            raise NodeFailed(f"a node said {message} of request {request.number}")
        now = time.monotonic() - begun
        first = first or now
        tokens += message.tokens
        if message.finished:
            if tokens != ANSWER:
                raise NodeFailed(f"request {request.number} got {tokens} tokens instead of {ANSWER}")
            return Reply(request.number, message.served, first, now, refusals)
