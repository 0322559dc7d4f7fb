"""Direct mode of a running node: its channel among the group, and its entry where one is configured.

A node's entry to the overlay serves ``entry`` as its application; who has none is a member of the group all the same,
serves what others' entries forward, and tells what it signed in checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from troth.chain.reputation import word_of_the_committee
from troth.node.configuration import NodeConfiguration
from troth.node.direct.counters import Counters
from troth.node.direct.dealing import EntryDealing
from troth.node.direct.entry_app import EntryContext, entry_app
from troth.node.direct.group_side import LIMITS, PATH, WHO, GroupAnswer, GroupSide, group_of
from troth.node.direct.hearing import AnswerReader
from troth.node.direct.listening import AnswerListening
from troth.node.direct.scheduler_side import SchedulerSide
from troth.node.direct.serving import ServingContext
from troth.node.engine.interface import WholeEngine
from troth.node.errors import ConfigError, NodeBusy
from troth.node.group.group import Group
from troth.node.orders.context import NodeContext
from troth.node.orders.service import OrderService
from troth.node.orders.session import SegmentSession
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.relay.delivery_server import PROXIES
from troth.overlay.sessions.entry import EntryKeys, overlay_entry, shared_entry, vouched_machines
from troth.protocol.market.state import State
from troth.protocol.types import Address, Segment
from troth.protocol.wire import GROUP_REQUESTS, GroupRequest
from troth.protocol.wire_tunnel import VISITORS_LIMIT
from troth.transport.channel_server import ChannelServer
from troth.transport.identity import Operator, load_identity
from troth.transport.shared_port import SharedPort


@dataclass(frozen=True, slots=True)
class DirectParts:
    """What answers the group, and what answers clients."""

    side: GroupSide
    entry: EntryContext
    schedulers: SchedulerSide
    listening: AnswerListening


def direct_parts(
    group: Group,
    context: NodeContext,
    counters: Counters,
    reasons: Callable[[], list[str]],
    machines: VouchedMachines | None = None,
) -> DirectParts:
    """The parts around a group and a node's context; ``machines`` are those that a confidential one speaks to."""
    listening, ground = AnswerListening(context), context.ground
    schedulers = SchedulerSide(lambda: ground.state, machines)
    hearing = AnswerReader(group, listening, context.engine.vocabulary, context.operator.domain)
    entry = EntryContext(
        me=context.me,
        execution_class=context.execution_class,
        domain=context.operator.domain,
        block=lambda: ground.block,
        schedulers=schedulers,
        tools=ServingContext(EntryDealing(group, counters), hearing, counters, context.engine.vocabulary),
        reasons=reasons,
    )
    return DirectParts(GroupSide(group, listening), entry, schedulers, listening)


def follow(service: OrderService, group: Group, listening: AnswerListening) -> None:
    """Have a node's sessions counted in its group, and listened to."""

    def began(session: SegmentSession) -> None:
        if session.seat.infers:
            group.took()
        listening.began(session)

    service.answered, service.began = group.served, began


class Direct:
    """Direct mode from the node's start to its end. Answers "busy" until `run` has the model.

    Args:
        configuration: the node's; its `overlay` is the entry.
        operator: signs messages to the group.
        registry: of the node's metrics.
        why: why the node is not ready.
        state: the deployment's.

    ``parts`` are there once the node serves; None before, and where it hosts a part of the model only.
    """

    def __init__(
        self,
        configuration: NodeConfiguration,
        operator: Operator,
        registry: CollectorRegistry,
        why: Callable[[], list[str]],
        state: Callable[[], State],
    ) -> None:
        self._configuration, self._operator, self._registry = configuration, operator, registry
        self._why, self._state = why, state
        self._loading = True
        self._group: Group | None = None
        self._side: GroupSide | None = None
        self.parts: DirectParts | None = None
        self._open = configuration.overlay is None
        # A lender lets so many visitors in at once; half of them are left to schedulers, however many proxies come.
        proxies = PROXIES if configuration.tunnel is None else VISITORS_LIMIT // 2
        self._shared = shared_entry(configuration.overlay, proxies)
        self._channel = ChannelServer(
            operator, self._handle, self._authorise, limits=LIMITS, requests=GROUP_REQUESTS, who=WHO, path=PATH
        )

    @property
    def shared_port(self) -> SharedPort | None:
        """What the node's server speaks beside HTTPS, where the entry shares its port."""
        return None if self._shared is None else self._shared.port

    def mount(self, app: FastAPI) -> None:
        """Serve the group's channel from the node's application."""
        self._channel.mount(app)

    async def drain(self) -> None:
        """Wait until every message of the group that was begun is answered."""
        await self._channel.drain()

    def reasons(self) -> list[str]:
        """Why the entry is not ready; empty when it is, or when there is none."""
        return [] if self._open else ["the overlay entry takes no requests yet"]

    async def run(self, context: NodeContext, service: OrderService) -> None:
        """Be a member of the group, and an entry where that is configured, until cancelled.

        A node that is no entry, and whose engine cannot tell what it holds, only answers: to tell all others how loaded
        it is costs more than it brings.

        Raises:
            ConfigError: an entry is configured, and the slice is not the whole model.
            OverlayError: the entry's port cannot be used.
            ChainError: a Reputation is configured, and cannot be read.
        """
        overlay, engine = self._configuration.overlay, context.engine
        if overlay is not None and engine.slice != Segment(0, engine.layers):
            remedy = f"Host layers 0:{engine.layers}, or take [overlay] out of node.toml."
            raise ConfigError("an overlay entry needs the whole model", str(engine.slice), remedy)
        async with AsyncExitStack() as stack:
            named = self._configuration
            rated = await stack.enter_async_context(
                word_of_the_committee(named.rpc, named.reputation, named.folder, chain_id=named.chain_id)
            )
            kept = named.folder / "directory"
            machines = await stack.enter_async_context(vouched_machines(overlay, named.rpc, kept))
            group = group_of(
                context, state=self._state, sessions=lambda: service.sessions, reputation=rated, machines=machines
            )
            self._loading = False
            if group is None:
                return
            stack.push_async_callback(group.close)
            parts = direct_parts(group, context, Counters(self._registry), self._why, machines)
            stack.push_async_callback(parts.schedulers.close)
            follow(service, group, parts.listening)
            self._group, self._side, self.parts = group, parts.side, parts
            identity = load_identity(self._configuration.tls_folder)
            keys = EntryKeys("node", self._operator.secret, identity, self._configuration.seal_key)
            app = entry_app(parts.entry)
            entry = overlay_entry(overlay, named.rpc, keys, app, self._registry, self._shared)
            await stack.enter_async_context(entry)
            self._open = True
            await (group.run() if overlay is not None or isinstance(engine, WholeEngine) else asyncio.Event().wait())

    def _authorise(self, sender: Address) -> bool:
        if self._loading:
            # Who will be in the group is told to come again, and not that it has no business here.
            party = self._state().parties.get(sender)
            return party is not None and party.execution_class == self._configuration.execution_class
        return self._group is not None and self._group.is_member(sender)

    async def _handle(self, sender: Address, header: GroupRequest, payload: memoryview) -> GroupAnswer:
        if self._side is None:
            raise NodeBusy("the model is still loading", None, "Retry in a few seconds; /readyz tells when.")
        return await self._side.handle(sender, header, payload)
