"""What `troth committee start` runs beside the directory where committee.toml has a [reputation] table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from troth.chain.adapter import Chain
from troth.chain.deployment import submit
from troth.chain.keystore import Key, load_vrf_secret, read_password
from troth.chain.reputation import followed_reputation
from troth.client.configuration import load as load_client
from troth.client.home import Home
from troth.client.orders.running import in_background, running
from troth.committee.configuration import MemberConfiguration
from troth.committee.corpus.own import warning_of
from troth.committee.directory.member import Member
from troth.committee.rating.asking import ClientExaminer
from troth.committee.rating.contract import JOURNAL, VRF_KEYSTORE
from troth.committee.rating.epochs import EpochJournal
from troth.committee.rating.member import RatingMember
from troth.committee.rating.moments import EpochClock
from troth.committee.rating.requests import MemberCalls
from troth.committee.rating.store import RECORDS, EpochStore
from troth.committee.rating.turns import EpochTurns
from troth.protocol.calls import Call
from troth.protocol.types import Address

log = logging.getLogger(__name__)

EVENTS = "reputation-events.sqlite"


@asynccontextmanager
async def rating(
    configuration: MemberConfiguration, key: Key, password_file: Path | None, member: Member
) -> AsyncIterator[RatingMember | None]:
    """A rater that takes its turns inside the block; None where the member rates nobody."""
    place, folder = configuration.rating, configuration.folder
    if place is None:
        yield None
        return
    if (warning := warning_of(place.terms.corpus)) is not None:
        log.warning("%s", warning)
    if (warning := place.terms.wear_in(folder).warning) is not None:
        log.warning("%s", warning)
    async with AsyncExitStack() as stack:
        password = read_password(password_file, purpose="the member's VRF key")
        vrf_secret = await asyncio.to_thread(load_vrf_secret, folder / VRF_KEYSTORE, password)
        home = Home(place.client)
        client = await stack.enter_async_context(running(home, load_client(home.configuration), password_file))
        contract, chain_id = place.contract.contract, configuration.chain_id
        start = place.contract.start_block
        follower = await stack.enter_async_context(
            followed_reputation(configuration.rpc, contract, folder / EVENTS, start_block=start, chain_id=chain_id)
        )
        chain = await stack.enter_async_context(await Chain.connect(configuration.rpc, contract, chain_id=chain_id))
        journal, store = EpochJournal(folder / JOURNAL), EpochStore(folder / RECORDS)
        stack.callback(journal.close)
        stack.callback(store.close)
        clock = EpochClock(chain, follower, lambda: member.membership, place.agreeing)
        examiner = ClientExaminer(client.session, place.least)
        rater = RatingMember(key.secret, vrf_secret, clock.moment, journal, store, examiner, place.terms)
        others = MemberCalls(key.secret, key.address, lambda: member.membership)
        turns = EpochTurns(rater, others, partial(_submit, configuration.rpc, key, contract))
        await stack.enter_async_context(in_background(turns.run(), "epochs of a rater"))
        yield rater


async def _submit(rpc: str, key: Key, contract: Address, call: Call) -> object:
    return await submit(rpc, call, key, contract)
