"""The content-private tier from a node's evidence to a checked answer, on machines that do not exist.

Real contracts, nodes, scheduler, channels, members and TLS; only the hardware and its vendor are made up, under a root
that nothing but these tests hands to a member. The overlay's relays are left out, as in every test of direct mode.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.committee_stage import Stage, committee_stage, seal_key
from support.direct_network import DirectNetwork, direct_network
from support.made_up_machine import MadeUpMachine, made_up_vendor

from troth.chain.keystore import Key
from troth.client.choices import SamplingChoices
from troth.client.direct.confidential import ConfidentialTier, readers
from troth.client.direct.overlay_ways import _destination
from troth.client.errors import NotAttested
from troth.client.orders.asking import ask
from troth.client.orders.updates import EndedUpdate, OrderOutcome
from troth.client.orders.wishes import CheckWish, Wish
from troth.node.errors import IntakeRefused
from troth.overlay.attestation.measurement import Measurement
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.directory.attesting import AttestedParty, attest
from troth.overlay.directory.errors import DirectoryUnavailable
from troth.overlay.directory.fetching import refresh
from troth.overlay.directory.publishing import publish_destination
from troth.overlay.directory.vouched import VouchedMachines
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.protocol.market.parts import Part
from troth.protocol.market.prices import MILLION
from troth.protocol.types import Address, Hash32
from troth.scheduler.assembly import _contact
from troth.transport.identity import load_identity

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PROMPT = tuple(range(3, 23))
ALWAYS = Wish(SamplingChoices(8), CheckWish("lot", MILLION))


@dataclass
class Confidential:
    """A network whose parties show their machines to a committee; its client trusts one image."""

    network: DirectNetwork
    committee: Stage
    folder: Path
    stack: AsyncExitStack
    machine: MadeUpMachine = field(default_factory=MadeUpMachine)
    trusted: set[Measurement] = field(default_factory=set)
    entered: dict[Address, int] = field(default_factory=dict)

    @property
    def parties(self) -> dict[Address, tuple[Key, str]]:
        stage = self.network.network.stage
        nodes = {key.address: (key, "node") for key in stage.nodes}
        return nodes | {stage.scheduler.address: (stage.scheduler, "scheduler")}

    @property
    def machines(self) -> VouchedMachines:
        return VouchedMachines(self.listing, self.trusted, self.committee.clock)

    def listing(self) -> Any:
        found = self.keeper.current(self.committee.clock())
        if found is None:
            raise DirectoryUnavailable("No list holds now")
        return found

    async def enter(self, operator: Address, machine: MadeUpMachine | None = None) -> None:
        """As a party's entry does it: listen, show the machine to each member, publish what they found."""
        # A descriptor names the second in which it was signed, and one that is not later than the last is refused.
        await asyncio.sleep(self.entered.get(operator, 0) + 1 - time.time())
        # The descriptor names the real time, which passes on a busy machine.
        self.committee.clock.now = max(self.committee.clock.now, time.time())
        key, kind = self.parties[operator]
        identity = load_identity(self.folder / "network" / operator / "tls")
        server = DeliveryServer(identity, lambda _link: None)  # type: ignore[arg-type,return-value]
        port = await server.start("127.0.0.1", 0)
        self.stack.push_async_callback(server.stop)
        place, seal = PinnedAddress("127.0.0.1", port, identity.spki_sha256), seal_key(operator)
        self.committee.bonded.add((operator, kind))
        membership = self.committee.membership
        found = await attest(
            machine or self.machine, AttestedParty(identity.spki_sha256, seal, operator, kind), membership
        )
        await publish_destination(key.secret, identity, place, membership, seal_key=seal, kind=kind, attested=found)
        self.entered[operator] = int(time.time())
        if machine is None:
            self.trusted.add(found.measurement)

    async def sign(self) -> None:
        """The next list, as the client fetches it."""
        self.committee.clock.next_slot()
        await self.committee.leader().leading.act()
        await refresh(self.keeper, self.committee.clock)

    async def ask(self) -> EndedUpdate:
        scene = self.network
        scene.network.stage.anvil.mine(1)
        await scene.follower.catch_up()
        await scene.network.scheduler.ledger.catch_up()
        updates = [update async for update in ask(scene.session, PROMPT, ALWAYS)]
        (found,) = (update for update in updates if isinstance(update, EndedUpdate))
        return found

    async def refused(self, why: str) -> None:
        """Nothing was placed, written down, or sent anywhere."""
        before = len(self.network.session.journal.all()), list(self.network.asked)
        with pytest.raises(NotAttested, match=why):
            await self.ask()
        after = [path for path in self.network.asked if "/v1/orders" in path]
        assert len(self.network.session.journal.all()) == before[0]
        assert after == [path for path in before[1] if "/v1/orders" in path]

    def __post_init__(self) -> None:
        self.keeper = self.committee.keeper()


@asynccontextmanager
async def confidential(anvil: Any, folder: Path) -> AsyncIterator[Confidential]:
    policy = made_up_vendor().policy()
    async with (
        AsyncExitStack() as stack,
        direct_network(anvil, folder, nodes=10) as network,
        committee_stage(folder / "committee", 3, policy=policy) as committee,
    ):
        made = Confidential(network, committee, folder, stack)
        session = network.session
        session.mode, session.tier = "confidential", ConfidentialTier(made.machines)
        yield made


async def test_a_confidential_order_is_answered_and_checked_by_attested_machines_alone(
    anvil: Any, tmp_path: Path
) -> None:
    async with confidential(anvil, tmp_path) as tier:
        scene, scheduler = tier.network, tier.network.network.stage.scheduler.address
        *most, last = (key.address for key in scene.network.stage.nodes)
        await tier.refused("11 of 11 machines")
        for operator in (scheduler, *most):
            await tier.enter(operator)
        await tier.sign()
        await tier.refused("1 of 11 machines")
        other = replace(tier.machine, image=b"another image")
        await tier.enter(last, other)
        await tier.sign()
        await tier.refused(last)
        await tier.enter(last)
        await tier.sign()

        ended = await tier.ask()
        assert ended.outcome is OrderOutcome.CHECKED
        (entry,) = scene.session.journal.all()
        history = scene.network.scheduler.orders.context.store.get(entry.identifier)
        readers_of_it = {*history.admitted.nodes, *(node for check in history.checks[0] for node in check.operators)}
        state, machines = scene.follower.state, tier.machines
        for node in readers_of_it:
            listed = machines.require(node, "node", state.parties[node].tls_key_hash)
            assert listed.seal_key == seal_key(node)
            # What the client's session to this node seals to is the attested key.
            assert _destination(tier.listing(), state, node, machines) == listed
        assert readers(state, scene.session.class_id, scene.follower.block) == sorted({*most, last})  # type: ignore[arg-type]

        await the_guards_hold(tier, last)
        tier.trusted.clear()
        await tier.refused("11 of 11 machines")


async def the_guards_hold(tier: Confidential, node: Address) -> None:
    """An owner registers another TLS key: neither client, scheduler nor entry speak to that machine any more."""
    scene, stage = tier.network, tier.network.network.stage
    entry = scene.parts(scene.entry).schedulers
    entry._machines = tier.machines
    assert entry.bonded(stage.scheduler.address)
    follower: Any = scene.follower
    assert _contact(follower, node, None, tier.machines) is not None
    key = next(one for one in stage.nodes if one.address == node)
    owner = stage.owner_of(key)
    await stage.send(owner, Part.REGISTRY, "setEndpoint", node, "https://127.0.0.1:9", Hash32(b"e" * 32))
    stage.anvil.mine(1)
    await scene.follower.catch_up()
    assert _contact(follower, node, None, tier.machines) is None
    assert _contact(follower, node, None, None) is not None
    await tier.refused(node)
    tier.trusted, kept = set(), tier.trusted
    entry._machines = tier.machines
    with pytest.raises(IntakeRefused, match="does not vouch"):
        entry.bonded(stage.scheduler.address)
    tier.trusted = kept
