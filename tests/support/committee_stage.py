"""Members of a committee in one event loop, over real TLS sockets, at a time that the test sets; and relays to list."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from troth.chain.keystore import Key
from troth.committee.directory.admission import Bounds, DescriptorAdmission, Posts
from troth.committee.directory.leading import Leading
from troth.committee.directory.member import Member, MemberMetrics
from troth.committee.directory.probing import Prober
from troth.committee.directory.schedule import Schedule
from troth.committee.directory.store import MemberStore
from troth.committee.directory.vouching import Vouching
from troth.committee.service import member_app
from troth.overlay.attestation.policy import PlatformPolicy
from troth.overlay.circuits.descriptors import Directory, PinnedAddress, RelayDescriptor
from troth.overlay.circuits.handshake import RelayIdentity
from troth.overlay.directory.descriptors import SignedRelay, Signer
from troth.overlay.directory.keeping import DirectoryKeeper
from troth.overlay.directory.listing import CommitteeMembership
from troth.overlay.relay.limits import RelayLimits
from troth.overlay.relay.listener import LinkListener
from troth.overlay.relay.metrics import RelayMetrics
from troth.overlay.relay.switch import Switch
from troth.protocol import committee
from troth.protocol.hashing import keccak256
from troth.protocol.typed_data import Domain
from troth.protocol.types import Address, Hash32
from troth.transport.identity import TlsIdentity, create_identity
from troth.transport.server import TlsServer

DOMAIN = Domain(31_337, Address("0x5FbDB2315678afecb367f032d93F642f64180aa3"))
SCHEDULE = Schedule(3600, 3 * 3600)
BOUNDS = Bounds(per_operator=64, per_host=256, per_network=256, relays=256, destinations=64)


def key_named(name: str) -> Key:
    """A key that depends on its name alone."""
    return Key.from_secret(keccak256(b"troth committee test " + name.encode()))


@dataclass
class Clock:
    """What time the members and their clients think it is."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now

    def next_slot(self) -> None:
        self.now = (self.now // SCHEDULE.period + 1) * SCHEDULE.period + 10.0


@dataclass
class StagedMember:
    """A member with its server; `stop` and `start` again as a process would."""

    key: Key
    folder: Path
    clock: Clock
    bonded: set[tuple[Address, str]]
    bounds: Bounds = BOUNDS
    posts: Callable[[], Posts] = lambda: Posts(1000, 1000)
    policy: PlatformPolicy | None = None
    port: int = 0
    server: TlsServer | None = None
    state: Member = field(init=False)
    leading: Leading = field(init=False)
    vouching: Vouching = field(init=False)

    def __post_init__(self) -> None:
        self.identity = create_identity(self.folder / "tls")

    async def listen(self) -> None:
        """Take a port, so that the membership can be written down."""
        await self.start(CommitteeMembership(DOMAIN, ()))

    async def start(self, membership: CommitteeMembership) -> None:
        store = MemberStore(self.folder / "committee.sqlite")
        prober = Prober(SCHEDULE.period, private=True, seconds=3.0)

        def bonded(operator: Address, kind: str) -> bool:
            return (operator, kind) in self.bonded

        self.vouching = Vouching(self.policy, store, bonded, SCHEDULE.valid, clock=self.clock)
        known = {"vouching": self.vouching, "clock": self.clock}
        admission = DescriptorAdmission(store, prober, bonded, self.bounds, SCHEDULE, **known)  # type: ignore[arg-type]
        admission.load(DOMAIN)
        self.state = Member(self.key.secret, membership, SCHEDULE, store, admission, MemberMetrics(), clock=self.clock)
        self.leading = Leading(self.state)
        self.leading._wait = 10.0
        app = member_app(self.state, self.posts(), self.vouching)
        self.server = TlsServer(app, self.identity, "127.0.0.1", self.port)
        await self.server.start()
        self.port = self.server.port

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None
            self.state.store.close()

    @property
    def entry(self) -> committee.CommitteeMember:
        pin = Hash32(self.identity.spki_sha256)
        return committee.CommitteeMember(self.key.address, pin, f"https://127.0.0.1:{self.port}")


@dataclass
class StagedRelay:
    """A relay that listens, and what it says of itself."""

    key: Key
    identity: TlsIdentity
    secret: X25519PrivateKey
    listener: LinkListener
    switch: Switch
    port: int

    @property
    def descriptor(self) -> RelayDescriptor:
        public = self.secret.public_key().public_bytes_raw()
        return RelayDescriptor(
            PinnedAddress("127.0.0.1", self.port, self.identity.spki_sha256), public, self.key.address
        )

    @property
    def signer(self) -> Signer:
        return Signer(self.key.secret, self.identity, DOMAIN)

    def signed(self, issued: float, **changes: object) -> SignedRelay:
        relay = self.descriptor
        place = PinnedAddress("127.0.0.1", int(changes.get("port", self.port)), relay.place.tls_key_hash)  # type: ignore[call-overload]
        handshake = changes.get("handshake_key", relay.handshake_key)
        changed = RelayDescriptor(place, handshake, relay.operator)  # type: ignore[arg-type]
        return self.signer.relay(changed, "test", 1000, int(issued))


@dataclass
class Stage:
    """A committee and its clock."""

    members: list[StagedMember]
    clock: Clock
    folder: Path
    bonded: set[tuple[Address, str]]
    relays: list[StagedRelay] = field(default_factory=list)

    @property
    def membership(self) -> CommitteeMembership:
        return CommitteeMembership.of(DOMAIN, tuple(member.entry for member in self.members))

    def leader(self) -> StagedMember:
        """Whose turn it is now."""
        operator = SCHEDULE.leader(SCHEDULE.slot_start(self.clock()), self.membership)
        return next(member for member in self.members if member.key.address == operator)

    def others(self) -> list[StagedMember]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def keeper(self) -> DirectoryKeeper:
        """A client that knows the members and no list."""
        keeper = DirectoryKeeper()
        keeper.membership = self.membership
        return keeper

    async def relay(self, name: str, operator: str | None = None) -> StagedRelay:
        """Start a relay."""
        identity = create_identity(self.folder / name)
        secret = X25519PrivateKey.generate()
        switch = Switch(RelayIdentity(identity.spki_sha256, secret), Directory({}, {}), RelayLimits(), RelayMetrics())
        listener = LinkListener(switch, identity)
        port = listener.start("127.0.0.1", 0)
        staged = StagedRelay(key_named(operator or name), identity, secret, listener, switch, port)
        self.relays.append(staged)
        return staged

    async def close(self) -> None:
        for member in self.members:
            await member.stop()
        for relay in self.relays:
            relay.listener.stop_listening()
            await relay.switch.pool.close()
            relay.switch.deliveries.close()
            relay.listener.close()


@asynccontextmanager
async def committee_stage(folder: Path, members: int = 4, **settings: object) -> AsyncIterator[Stage]:
    """`members` members that listen and know each other; none acts by itself."""
    clock, bonded = Clock(), set[tuple[Address, str]]()
    staged = [
        StagedMember(key_named(f"member {number}"), folder / f"member{number}", clock, bonded, **settings)  # type: ignore[arg-type]
        for number in range(members)
    ]
    stage = Stage(staged, clock, folder, bonded)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(stage.close)
        for member in staged:
            await member.listen()
        for member in staged:
            member.state.membership = stage.membership
        yield stage


def seal_key(name: str) -> bytes:
    """32 bytes that stand for an X25519 key."""
    return hashlib.sha256(name.encode()).digest()
