"""The running process behind `troth committee start`. It reads from the chain the member's committee, and who is bonded
as scheduler or node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from troth.chain.adapter import Chain
from troth.chain.duty import Duty
from troth.chain.keystore import Key, load_account, read_password
from troth.committee.configuration import FILE, MemberConfiguration, load
from troth.committee.directory.admission import Bonded, DescriptorAdmission, Posts
from troth.committee.directory.leading import Leading
from troth.committee.directory.market_bonds import market_bonds
from troth.committee.directory.member import Member, MemberMetrics
from troth.committee.directory.probing import Prober
from troth.committee.directory.store import MemberStore
from troth.committee.directory.vouching import Vouching
from troth.committee.rating.running import rating
from troth.committee.service import member_app
from troth.committee.tickets.keys import TicketKeyMember, TicketKeyStore
from troth.committee.tickets.service import TicketMetrics, TicketOffice
from troth.committee.tickets.turns import TicketTurns
from troth.overlay.directory.listing import membership_on
from troth.protocol.tickets import messages
from troth.protocol.types import Address
from troth.transport.identity import load_identity
from troth.transport.listener import require_free
from troth.transport.server import TlsServer, run_until_stopped

log = logging.getLogger(__name__)

MEMBERSHIP_SECONDS = 60.0
SHORTEST_MEMORY = 60.0
"""Seconds for which an answer counts where lists come faster than on a real network."""
TICKET_SHARES = "tickets.sqlite"


def nobody_bonded(_operator: Address, _kind: str) -> bool:
    """Without a deployment no destination is listed."""
    return False


@asynccontextmanager
async def bonds(configuration: MemberConfiguration) -> AsyncIterator[Bonded]:
    """Follows the configured market inside the block."""
    chain_id = configuration.chain_id
    if configuration.market is not None:
        place, folder = configuration.market, configuration.folder
        async with market_bonds(configuration.rpc, place, folder, chain_id=chain_id) as bonded:
            yield bonded
        return
    yield nobody_bonded


async def follow_membership(chain: Chain, member: Member, seconds: float = MEMBERSHIP_SECONDS) -> None:
    """Read the members again and again, for ever; while the chain is away the last ones count."""

    async def read() -> None:
        found = await membership_on(chain)
        if found != member.membership:
            log.info("the committee has %d members now", len(found.members))
            member.membership = found

    await asyncio.sleep(seconds)
    await Duty("reading who is a member", read, every=seconds, longest=seconds).run()


async def serve(folder: Path, password_file: Path | None) -> None:
    """Serve until SIGINT or SIGTERM."""
    configuration = load(folder)
    require_free(configuration.host, configuration.port, f"listen.port in {folder / FILE}")
    password = read_password(password_file, purpose="the member's keystore")
    key = await asyncio.to_thread(load_account, configuration.operator_keystore, password)
    identity = load_identity(configuration.tls_folder)
    async with (
        assembled(configuration, key) as member,
        rating(configuration, key, password_file, member) as rater,
        signing_tickets(configuration, key, member) as tickets,
    ):
        posts = Posts(configuration.posts_per_second, configuration.posts_per_second_per_host)
        app = member_app(member, posts, member.admission.vouching, rater, tickets)
        server = TlsServer(app, identity, configuration.host, configuration.port)
        await run_until_stopped(server, lambda port: _ready(member, configuration.endpoint, port))
    log.info("stopped")


@asynccontextmanager
async def signing_tickets(
    configuration: MemberConfiguration, key: Key, member: Member
) -> AsyncIterator[TicketOffice | None]:
    """Takes its turns at keys inside the block, and signs tickets; None where the member signs none."""
    place = configuration.tickets
    if place is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        connecting = await Chain.connect(configuration.rpc, place.contract, chain_id=configuration.chain_id)
        chain = await stack.enter_async_context(connecting)
        rules = await chain.read(messages.rules())
        store = TicketKeyStore(configuration.folder / TICKET_SHARES)
        stack.callback(store.close)
        signer = TicketKeyMember(key.secret, chain.domain, len(rules.prices), store)
        pace = (place.poll, place.patience)
        turns = TicketTurns(key, configuration.rpc, signer, lambda: member.membership, chain, *pace)
        stack.push_async_callback(_ended, asyncio.create_task(turns.run()))
        metrics = TicketMetrics(member.metrics.registry)
        yield TicketOffice(signer, lambda: member.membership, chain, place.confirmations, metrics)


@asynccontextmanager
async def assembled(configuration: MemberConfiguration, key: Key) -> AsyncIterator[Member]:
    """A member that follows the chain and takes its turns inside the block."""
    async with AsyncExitStack() as stack:
        chain = await stack.enter_async_context(
            await Chain.connect(configuration.rpc, configuration.committee_address, chain_id=configuration.chain_id)
        )
        membership = await membership_on(chain)
        bonded = await stack.enter_async_context(bonds(configuration))
        store = MemberStore(configuration.folder / "committee.sqlite")
        stack.callback(store.close)
        schedule = configuration.schedule
        prober = Prober(max(schedule.period, SHORTEST_MEMORY), private=configuration.private_addresses)
        vouching = Vouching(configuration.attestation, store, bonded, schedule.valid)
        admission = DescriptorAdmission(store, prober, bonded, configuration.bounds, schedule, vouching=vouching)
        admission.load(membership.domain)
        member = Member(key.secret, membership, schedule, store, admission, MemberMetrics())
        leading = Leading(member)
        for work in (leading.run(), leading.ask_again(), follow_membership(chain, member)):
            stack.push_async_callback(_ended, asyncio.create_task(work))
        yield member


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _ready(member: Member, endpoint: str, port: int) -> None:
    for reason in member.reasons():
        log.warning("not ready: %s", reason)
    log.info("serving %s on port %d", endpoint, port)
