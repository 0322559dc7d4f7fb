"""Direct mode of a running node, put together: its channel among the group, and its entry where one is configured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from troth.node.configuration import Configuration
from troth.node.direct.counters import Counters
from troth.node.direct.entering import Entering
from troth.node.direct.entry_app import Entry, entry_app
from troth.node.direct.group_side import LIMITS, PATH, WHO, GroupAnswer, GroupSide
from troth.node.direct.hearing import Hearing
from troth.node.direct.listening import Listening
from troth.node.direct.scheduler_side import SchedulerSide
from troth.node.direct.seams import Group, MakeGroup
from troth.node.direct.taking import Taking
from troth.node.errors import Busy, ConfigError
from troth.node.service.bench import Bench
from troth.node.service.node_service import NodeService
from troth.overlay.channel_server import ChannelServer
from troth.overlay.identity import load_identity
from troth.overlay.operator import Operator
from troth.overlay.sessions.entry import EntryKeys, overlay_entry
from troth.protocol.state import State
from troth.protocol.types import Address, Segment
from troth.protocol.wire import GROUP_REQUESTS, GroupRequest


@dataclass(frozen=True, slots=True)
class DirectParts:
    """What answers the group, and what answers clients."""

    side: GroupSide
    entry: Entry
    schedulers: SchedulerSide


def direct_parts(
    group: Group, bench: Bench, service: NodeService, state: Callable[[], State], counters: Counters
) -> DirectParts:
    """The parts around a group, a node's service, and the folded chain."""
    taking = Taking(group, lambda: service.leaving)
    listening = Listening(service, taking, bench.view, bench.sign)
    schedulers = SchedulerSide(state)
    entry = Entry(
        me=bench.operator.address,
        execution_class=bench.execution_class,
        view=bench.view,
        schedulers=schedulers,
        entering=Entering(group, taking, counters),
        hearing=Hearing(group, listening, bench.engine.vocabulary),
        counters=counters,
    )
    return DirectParts(GroupSide(group, taking, listening), entry, schedulers)


class Direct:
    """Direct mode from the node's start to its end. Answers "busy" until `run` has the model.

    Args:
        configuration: the node's; its `overlay` is the entry.
        operator: signs messages to the group.
        make_group: how to find the group.
        registry: of the node's metrics.
    """

    def __init__(
        self, configuration: Configuration, operator: Operator, make_group: MakeGroup, registry: CollectorRegistry
    ) -> None:
        self._configuration, self._operator, self._make_group = configuration, operator, make_group
        self._registry = registry
        self._group: Group | None = None
        self._side: GroupSide | None = None
        self._open = configuration.overlay is None
        self._channel = ChannelServer(
            operator, self._handle, self._authorise, limits=LIMITS, requests=GROUP_REQUESTS, who=WHO, path=PATH
        )

    def mount(self, app: FastAPI) -> None:
        """Serve the group's channel from the node's application."""
        self._channel.mount(app)

    async def drain(self) -> None:
        """Wait until every message of the group that was begun is answered."""
        await self._channel.drain()

    def reasons(self) -> list[str]:
        """Why the entry is not ready; empty when it is, or when there is none."""
        return [] if self._open else ["the overlay entry takes no requests yet"]

    async def run(self, bench: Bench, service: NodeService, state: Callable[[], State]) -> None:
        """Be a member of the group, and an entry where that is configured, until cancelled.

        Raises:
            ConfigError: an entry is configured, and the slice is not the whole model.
            OverlayError: the entry's port cannot be used.
        """
        overlay, engine = self._configuration.overlay, bench.engine
        if overlay is not None and engine.slice != Segment(0, engine.layers):
            remedy = f"Host layers 0:{engine.layers}, or take [overlay] out of node.toml."
            raise ConfigError("an overlay entry needs the whole model", str(engine.slice), remedy)
        group = self._make_group(bench, state=state, sessions=lambda: service.sessions, wanted=overlay is not None)
        if group is None:
            return
        async with AsyncExitStack() as stack:
            stack.push_async_callback(group.close)
            parts = direct_parts(group, bench, service, state, Counters(self._registry))
            stack.push_async_callback(parts.schedulers.close)
            service.answered, service.took = group.served, group.took
            self._group, self._side = group, parts.side
            identity = load_identity(self._configuration.tls_folder)
            keys = EntryKeys("node", self._operator.secret, identity, self._configuration.seal_key)
            app = entry_app(parts.entry)
            await stack.enter_async_context(overlay_entry(overlay, self._configuration.rpc, keys, app, self._registry))
            self._open = True
            await group.run()

    def _authorise(self, sender: Address) -> bool:
        return self._group is not None and self._group.is_member(sender)

    async def _handle(self, sender: Address, header: GroupRequest, payload: memoryview) -> GroupAnswer:
        if self._side is None:
            raise Busy("the model is still loading", None, "Retry in a few seconds; /readyz tells when.")
        return await self._side.handle(sender, header, payload)
