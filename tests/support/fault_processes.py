"""Whole parties as processes, as they are shipped: a node with a small torch model, a scheduler, a client.

They are forked from a server that has imported everything, so that one starts within a moment. Each takes the plan of
``crash_points`` with it, and dies where that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.crash_points import Plan, arm

from troth.chain.keystore import Key
from troth.client.choices import SamplingChoices
from troth.client.configuration import ClientConfiguration
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.orders.asking import ask
from troth.client.orders.evidence import served_of
from troth.client.orders.journal import RUNNING, OrderRecord, Phase
from troth.client.orders.keeping import OrderKeeper
from troth.client.orders.session import PayerSession, market_session
from troth.client.orders.updates import EndedUpdate, TextUpdate
from troth.client.orders.wishes import CheckWish, Wish
from troth.node.configuration import NodeConfiguration
from troth.node.orders.running import RunningNode
from troth.scheduler.assembly import SchedulerKeys, assembled_market
from troth.scheduler.configuration import SchedulerConfiguration
from troth.scheduler.duties import DutyPace
from troth.testnet.forked import Forked, fork, preload, take_streams
from troth.transport import event_loop
from troth.transport.identity import load_identity
from troth.transport.logs import configure
from troth.transport.server import TlsServer, run_until_stopped

PASSWORD = "of a test"
PACE = DutyPace(urgent=0.1, money=0.5, slow=5.0)
STOP_SECONDS = 60.0

preload("support.fault_network")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    configuration: NodeConfiguration
    secret: bytes


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    configuration: SchedulerConfiguration
    secret: bytes
    vrf_secret: bytes


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """``questions`` are asked one after the other, ``at_once`` side by side; then what is due is waited for."""

    home: Path
    rpc: str
    factory: str
    bank: str
    questions: tuple[tuple[int, ...], ...] = ()
    check: str = "always"
    max_tokens: int = 6
    at_once: int = 1
    said: Path | None = None


@dataclass(slots=True)
class Process:
    """One party's process; ``start`` it again after it died."""

    name: str
    main: Callable[..., None]
    settings: Any
    plan: Plan
    log: Path
    running: Forked | None = None

    def start(self) -> Process:
        assert not self.alive
        target, arguments = begun, (self.main, self.settings, self.plan, str(self.log))
        self.running = fork(target, arguments, self.name)
        return self

    @property
    def alive(self) -> bool:
        return self.running is not None and self.running.poll() is None

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def code(self) -> int | None:
        return None if self.running is None else self.running.poll()

    def kill(self) -> None:
        """As a loss of power does."""
        assert self.running is not None
        self.running.kill()
        self.running.wait()

    def stop(self) -> None:
        if self.running is not None and self.alive:
            self.running.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running.wait(STOP_SECONDS)
        if self.alive:
            self.kill()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else "no log"


def begun(main: Callable[..., None], settings: Any, plan: Plan, log: str) -> None:
    """In the child: what it prints goes to its log."""
    take_streams(log, log)
    configure("info")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    main(settings, plan)


def node_main(settings: NodeSettings, plan: Plan) -> None:
    import torch

    torch.set_num_threads(1)
    arm("node", plan)
    node = RunningNode(settings.configuration, Key.from_secret(settings.secret), verify_weights=False)
    event_loop.run(node.run())


def scheduler_main(settings: SchedulerSettings, plan: Plan) -> None:
    arm("scheduler", plan)
    event_loop.run(_schedule(settings))


async def _schedule(settings: SchedulerSettings) -> None:
    configuration = settings.configuration
    keys = SchedulerKeys(Key.from_secret(settings.secret), settings.vrf_secret)
    identity = load_identity(configuration.folder / "tls")
    async with assembled_market(configuration, keys, PACE) as scheduler:
        drain = scheduler.orders.drain
        server = TlsServer(scheduler.app(), identity, configuration.host, configuration.port, drain=drain)
        await run_until_stopped(server, lambda port: logging.info("serving on %d", port))


def client_configuration(settings: ClientSettings) -> ClientConfiguration:
    table = MarketTable(factory=settings.factory, bank=settings.bank, reviewers=5, seats=1, outside=0, stall=45)
    return ClientConfiguration(table, settings.rpc)


def client_main(settings: ClientSettings, plan: Plan) -> None:
    arm("client", plan)
    event_loop.run(_ask_all(settings))


async def _ask_all(settings: ClientSettings) -> None:
    async with AsyncExitStack() as stack:
        making = market_session(Home(settings.home), client_configuration(settings), PASSWORD)
        session = await stack.enter_async_context(making)
        await stack.enter_async_context(OrderKeeper(session))
        free = asyncio.Semaphore(settings.at_once)

        async def one(prompt: tuple[int, ...]) -> None:
            async with free:
                await _ask_one(session, prompt, settings)

        await asyncio.gather(*(one(prompt) for prompt in settings.questions))
        while not settled(session):  # noqa: ASYNC110 -- other processes settle, too
            await asyncio.sleep(0.1)


async def _ask_one(session: PayerSession, prompt: tuple[int, ...], settings: ClientSettings) -> None:
    wish = Wish(SamplingChoices(settings.max_tokens), CheckWish.read(settings.check))
    text, outcome = "", "none"
    try:
        async for update in ask(session, prompt, wish):
            if isinstance(update, TextUpdate):
                text += update.text
            if isinstance(update, EndedUpdate):
                outcome = update.outcome.value
    except Exception as error:  # noqa: BLE001 -- what a user would be shown
        outcome = f"{type(error).__name__}: {error}"
    if settings.said is not None:
        with settings.said.open("a") as file:
            file.write(json.dumps({"outcome": outcome, "text": text}) + "\n")


def settled(session: PayerSession) -> bool:
    """Whether every order is acknowledged, or its draw came too late for that, and its scheduler has heard so."""
    entries = session.journal.all()
    done = all(entry.phase not in RUNNING and (entry.paid is not None or too_late(entry)) for entry in entries)
    return done and all(one.delivered or one.voucher is None for one in session.books.all(session.domain))


def too_late(entry: OrderRecord) -> bool:
    """Whether its draw was asked for when no secret counted any more."""
    return entry.phase is Phase.REFUSED_CHECK and served_of(entry) is None
