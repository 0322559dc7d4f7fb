"""Members over real TLS: who is listed, who must sign, and what a dishonest member or relay gets for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from support.committee_stage import DOMAIN, SCHEDULE, Stage, StagedMember, committee_stage, key_named, seal_key

from troth.committee import requests
from troth.committee.directory.admission import Bounds, Posts, check
from troth.committee.directory.proposal import Checked, encode_proposal
from troth.committee.errors import NoAgreement, ProposalRefused, SignedOther, Unreachable
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.directory.codec import encode_listing
from troth.overlay.directory.descriptors import Signer, encode_descriptor
from troth.overlay.directory.errors import DescriptorRefused, DirectoryUnavailable, ListRolledBack, SignerUnknown
from troth.overlay.directory.fetching import DirectoryClient, fetch_from, refresh
from troth.overlay.directory.listing import CommitteeMembership, Listing
from troth.overlay.directory.publishing import publish, publish_destination, require_enough
from troth.overlay.directory.signing import SignedListing, decode_signed, encode_signed, sign_listing, verify
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.transport.errors import RemoteFailure
from troth.transport.https import pinned_client
from troth.transport.identity import create_identity

pytestmark = pytest.mark.slow


async def published(stage: Stage, *names: str) -> None:
    """Start relays, and have them tell every member."""
    for name in names:
        relay = await stage.relay(name)
        assert require_enough(await publish(relay.signed(stage.clock()), stage.membership)).members == len(
            stage.members
        )


async def listed(stage: Stage) -> Listing:
    """What a client that knows nothing gets."""
    return await refresh(stage.keeper(), stage.clock)


def names(listing: Listing) -> set[bytes]:
    return {one.relay.name for one in listing.relays}


@pytest.mark.parametrize("members", [1, 3, 4])
async def test_relays_are_listed_and_any_member_serves_the_list(members: int, tmp_path: Path) -> None:
    async with committee_stage(tmp_path, members) as stage:
        await published(stage, "one", "two", "three")
        await stage.leader().leading.act()
        served = {await fetch_from(member) for member in stage.membership.members}
        assert len(served) == 1
        (data,) = served
        assert data is not None
        listing = verify(decode_signed(data), stage.membership.operators, DOMAIN, stage.clock())
        assert names(listing) == {relay.identity.spki_sha256 for relay in stage.relays}
        assert {one.since for one in listing.relays} == {listing.valid_after}
        assert {one.relay.operator for one in listing.relays} == {relay.key.address for relay in stage.relays}
        member = stage.membership.members[0]
        assert await fetch_from(member, decode_signed(data).digest.hex()) is None


async def test_a_dead_leader_costs_one_slot(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        dead = stage.leader()
        await dead.stop()
        for member in stage.others():
            await member.leading.act()
        with pytest.raises(DirectoryUnavailable):
            await listed(stage)
        stage.clock.next_slot()
        assert stage.leader() is not dead
        await stage.leader().leading.act()
        assert len((await listed(stage)).relays) == 1


async def test_with_a_third_of_the_members_gone_nothing_is_signed(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        for member in stage.others()[:2]:
            await member.stop()
        with pytest.raises(NoAgreement):
            await stage.leader().leading.act()
        with pytest.raises(DirectoryUnavailable):
            await listed(stage)


async def test_age_is_kept_from_list_to_list_and_through_restarts(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "old")
        await stage.leader().leading.act()
        first = await listed(stage)
        stage.clock.next_slot()
        for member in stage.members:
            await member.stop()
            await member.start(stage.membership)
        await published(stage, "new")
        assert require_enough(await publish(stage.relays[0].signed(stage.clock()), stage.membership)).members == 4
        await stage.leader().leading.act()
        second = await listed(stage)
        since = {one.relay.name: one.since for one in second.relays}
        assert since[stage.relays[0].identity.spki_sha256] == first.valid_after
        assert since[stage.relays[1].identity.spki_sha256] == second.valid_after > first.valid_after


@pytest.mark.parametrize("misses", [1, 2])
async def test_one_probe_that_fails_costs_a_relay_nothing_and_two_its_age(tmp_path: Path, misses: int) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "old")
        await stage.leader().leading.act()
        first = await listed(stage)
        stage.clock.next_slot()
        for member in stage.members:
            prober = member.state.admission._prober
            prober._answered.clear()
            prober._pause = 0.0
            prober._probe = missing(prober._probe, misses)  # type: ignore[method-assign]
        await stage.leader().leading.act()
        second = await listed(stage)
        assert second.valid_after > first.valid_after
        assert [one.since for one in second.relays] == [first.valid_after] * (misses == 1)


def missing(probe: Callable[[Checked], Awaitable[None]], times: int) -> Callable[[Checked], Awaitable[None]]:
    """A probe whose first packets are lost."""
    lost = iter(range(times))

    async def probing(entry: Checked) -> None:
        if next(lost, None) is not None:
            raise Unreachable("a packet was lost", entry.name.hex())
        await probe(entry)

    return probing


async def test_a_relay_that_is_silent_is_forgotten(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        await stage.leader().leading.act()
        assert len((await listed(stage)).relays) == 1
        stage.clock.now += SCHEDULE.valid
        await stage.leader().leading.act()
        assert (await listed(stage)).relays == ()


async def test_a_member_that_comes_back_catches_up_and_does_not_sign_twice(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        absent = stage.others()[0]
        await absent.stop()
        await stage.leader().leading.act()
        await absent.start(stage.membership)
        assert absent.state.newest is None
        await absent.leading.act()
        assert absent.state.newest is not None
        assert len(absent.state.newest.listing.relays) == 1


async def test_a_leader_that_proposes_two_lists_gets_one_signature_each(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one", "two")
        leader, other = stage.leader(), stage.others()[0]
        entries = leader.state.admission.entries()
        valid_after = SCHEDULE.slot_start(stage.clock())
        both = entries.proposal(valid_after, b"")
        less = entries.only({stage.relays[0].identity.spki_sha256}).proposal(valid_after, b"")
        await other.state.sign(both)
        with pytest.raises(SignedOther):
            await other.state.sign(less)
        await other.stop()
        await other.start(stage.membership)
        with pytest.raises(SignedOther):
            await other.state.sign(less)
        assert await other.state.sign(both)


async def test_a_leader_that_was_killed_after_it_signed_goes_on_with_the_same_list(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        leader = stage.leader()
        proposal = leader.state.admission.entries().proposal(SCHEDULE.slot_start(stage.clock()), b"")
        content, _ = await leader.state.sign(proposal)
        await leader.stop()
        await leader.start(stage.membership)
        await published(stage, "two")
        await leader.leading.act()
        assert leader.state.newest is not None
        assert leader.state.newest.signed.content == content


async def test_nobody_is_aged_or_made_younger_by_the_leader(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        await stage.leader().leading.act()
        stage.clock.next_slot()
        leader, other = stage.leader(), stage.others()[0]
        entries, valid_after = leader.state.admission.entries(), SCHEDULE.slot_start(stage.clock())
        with pytest.raises(ProposalRefused, match="newest list"):
            await other.state.sign(entries.proposal(valid_after, b""))
        kept = leader.state.newest
        assert kept is not None
        older = replace(kept.listing, relays=tuple(replace(one, since=1) for one in kept.listing.relays))
        forged = encode_signed(SignedListing(encode_listing(older), kept.signed.signatures))
        with pytest.raises(SignerUnknown):
            await other.state.sign(entries.proposal(valid_after, forged))
        await leader.leading.act()
        assert {one.since for one in (await listed(stage)).relays} == {kept.listing.valid_after}


async def test_relays_that_lie_are_not_listed(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "honest")
        liar, honest = await stage.relay("liar"), stage.relays[0]
        now = stage.clock()
        lies = [
            liar.signed(now, port=1),
            liar.signed(now, port=honest.port),
            liar.signed(now, handshake_key=seal_key("another")),
            # Another's relay under an operator of the liar's own.
            Signer(liar.key.secret, liar.identity, DOMAIN).relay(honest.descriptor, "", 0, int(now)),
        ]
        for lie in lies:
            outcome = await publish(lie, stage.membership)
            assert all(isinstance(error, RemoteFailure) for error in outcome.values()), outcome
            with pytest.raises(DescriptorRefused):
                require_enough(outcome)
        await stage.leader().leading.act()
        assert names(await listed(stage)) == {honest.identity.spki_sha256}


async def test_a_leader_cannot_list_a_relay_that_others_cannot_reach(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "honest")
        liar = await stage.relay("liar")
        leader = stage.leader()
        lie = liar.signed(stage.clock(), port=1)
        leader.state.admission._prober._answered.clear()
        entry = check(encode_descriptor(lie), "relay", DOMAIN)
        leader.state.admission._relays[entry.name] = entry
        leader.state.admission._prober.require_answer = _nothing  # type: ignore[method-assign]
        proposal = leader.state.admission.entries().proposal(SCHEDULE.slot_start(stage.clock()), b"")
        for member in stage.others():
            with pytest.raises(ProposalRefused, match="does not accept"):
                await member.state.sign(proposal)
        await leader.leading.act()
        assert names(await listed(stage)) == {stage.relays[0].identity.spki_sha256}


async def _nothing(*_: object, **__: object) -> None:
    return None


async def test_only_the_slots_leader_may_propose(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        receiver, impostor = stage.others()[0], stage.others()[1]
        valid_after = SCHEDULE.slot_start(stage.clock())
        body = encode_proposal(impostor.state.admission.entries().proposal(valid_after, b""))
        for secret in (impostor.key.secret, key_named("stranger").secret):
            headers = requests.headers_of(requests.PROPOSAL, body, valid_after, DOMAIN, secret)
            with pytest.raises(RemoteFailure, match="request_refused"):
                await requests.send(receiver.entry, "/v1/proposals", body, headers, 10)
        headers = requests.headers_of(requests.PROPOSAL, body, valid_after, DOMAIN, stage.leader().key.secret)
        with pytest.raises(RemoteFailure, match="request_refused"):
            await requests.send(receiver.entry, "/v1/proposals", body + b"x", headers, 10)
        with pytest.raises(RemoteFailure, match="request_refused"):
            await requests.send(receiver.entry, "/v1/opinions", body, headers, 10)
        assert len(await requests.send(receiver.entry, "/v1/proposals", body, headers, 10)) == 65
        stage.clock.next_slot()
        stage.clock.now += SCHEDULE.skew
        with pytest.raises(RemoteFailure, match="request_refused"):
            await requests.send(receiver.entry, "/v1/proposals", body, headers, 10)


async def test_short_signed_and_forged_lists_are_not_taken_up_by_members(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        await stage.leader().leading.act()
        honest = decode_signed((await fetch_from(stage.membership.members[0])) or b"")
        stage.clock.next_slot()
        leader, other = stage.leader(), stage.others()[0]
        content, own = await leader.state.sign(
            leader.state.admission.entries().proposal(SCHEDULE.slot_start(stage.clock()), encode_signed(honest))
        )
        stranger = sign_listing(content, DOMAIN, key_named("stranger").secret)
        for signatures in ((own,), (own, own, own), (own, stranger), honest.signatures):
            data = encode_signed(SignedListing(content, tuple(signatures)))
            headers = requests.headers_of(
                requests.LIST, data, SCHEDULE.slot_start(stage.clock()), DOMAIN, leader.key.secret
            )
            with pytest.raises(RemoteFailure):
                await requests.send(other.entry, "/v1/lists", data, headers, 10)
        assert other.state.newest is not None
        assert other.state.newest.signed.digest == honest.digest


async def test_a_member_that_serves_an_old_list_does_not_bring_a_client_back(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        await stage.leader().leading.act()
        old = await fetch_from(stage.membership.members[0])
        keeper = stage.keeper()
        await refresh(keeper, stage.clock)
        stage.clock.next_slot()
        await published(stage, "two")
        await stage.leader().leading.act()
        stage.clock.now += SCHEDULE.period * 0.9
        liar: StagedMember = stage.members[0]
        liar.state.newest = None
        assert old is not None
        liar.state.take(old)
        assert len((await refresh(keeper, stage.clock)).relays) == 2
        with pytest.raises(ListRolledBack):
            keeper.offer(old, stage.clock())
        # One who knows nothing yet asks others as well, since a newer list is due.
        for _ in range(8):
            assert len((await listed(stage)).relays) == 2


async def test_a_client_lives_on_its_kept_list_while_it_holds(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await published(stage, "one")
        await stage.leader().leading.act()
        seen: list[Listing] = []

        async def membership():
            return stage.membership

        async def away():
            raise DirectoryUnavailable("the chain is away")

        def client(read) -> DirectoryClient:
            return DirectoryClient(DOMAIN.contract, read, tmp_path / "list", seen.append, clock=stage.clock)

        await client(membership).refresh()
        for member in stage.members:
            await member.stop()
        again = client(away)
        again.start()
        await again.stop()
        assert len(seen) == 2
        assert seen[0] == seen[1]
        stage.clock.now += SCHEDULE.valid
        late = client(away)
        late.start()
        await late.stop()
        assert late.current() is None
        assert len(seen) == 2


async def test_a_flood_of_descriptors_is_bounded(tmp_path: Path) -> None:
    bounds = Bounds(per_operator=2, per_host=4, per_network=4, relays=4, destinations=4)
    async with committee_stage(tmp_path, 1, bounds=bounds) as stage:
        for number in range(6):
            relay = await stage.relay(f"greedy{number}", operator="greedy")
            await publish(relay.signed(stage.clock()), stage.membership)
        admission = stage.members[0].state.admission
        assert len(admission.entries().relays) == 2
        for number in range(6):
            relay = await stage.relay(f"crowd{number}")
            await publish(relay.signed(stage.clock()), stage.membership)
        assert len(admission.entries().relays) == 4
        assert len(list(stage.members[0].state.store.descriptors("relay"))) == 4
        # Those who are known go on.
        assert require_enough(await publish(stage.relays[0].signed(stage.clock() + 1), stage.membership)).members == 1


async def test_posts_are_rate_limited_and_bodies_are_small(tmp_path: Path) -> None:
    async with committee_stage(tmp_path, 1, posts=lambda: Posts(0.001, 0.001)) as stage:
        relay = await stage.relay("one")
        member = stage.membership.members[0]
        async with pinned_client(member.endpoint, member.tls_key_hash) as client:
            large = await client.post("/v1/relays", content=bytes(2000))
            assert large.status_code == 503
            body = encode_descriptor(relay.signed(stage.clock()))
            codes = [(await client.post("/v1/relays", content=body)).status_code for _ in range(20)]
            assert 503 in codes
            assert (await client.post("/v1/lists", content=bytes(10))).status_code == 400
            assert (await client.post("/v1/relays", content=b"garbage")).status_code in (422, 503)


async def test_a_crowd_of_newcomers_does_not_keep_out_who_is_known(tmp_path: Path) -> None:
    async with committee_stage(tmp_path, 1, posts=lambda: Posts(0.5, 1000)) as stage:
        known = [await stage.relay(f"known{number}") for number in range(2)]
        for relay in known:
            require_enough(await publish(relay.signed(stage.clock()), stage.membership))
        newcomer = await stage.relay("newcomer")
        with pytest.raises(DescriptorRefused, match="newcomers"):
            require_enough(await publish(newcomer.signed(stage.clock()), stage.membership))
        for relay in known:
            assert require_enough(await publish(relay.signed(stage.clock() + 1), stage.membership)).members == 1


async def test_relays_that_fall_silent_do_not_hold_a_list_up(tmp_path: Path) -> None:
    async with committee_stage(tmp_path, 1) as stage:
        await published(stage, "loyal", "gone")
        loyal, gone = stage.relays
        gone.listener.stop_listening()
        admission = stage.members[0].state.admission
        admission._prober._lately = 0.0
        await admission.ask_again()
        admission._prober._lately = 1000.0
        entries = await stage.members[0].state.acceptable(admission.entries())
        assert entries.names() == {loyal.identity.spki_sha256}
        assert len(admission._prober._silent) == 1


async def test_destinations_are_bonded_and_keep_their_own_seal_key(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        identity, key = create_identity(tmp_path / "destination"), key_named("scheduler")
        server = DeliveryServer(identity, _never)
        place = PinnedAddress("127.0.0.1", await server.start("127.0.0.1", 0), identity.spki_sha256)
        try:
            arguments = (key.secret, identity, place, stage.membership)
            with pytest.raises(DescriptorRefused, match="bonded"):
                await publish_destination(*arguments, seal_key=seal_key("s"), kind="scheduler")
            stage.bonded.add((key.address, "scheduler"))
            published = await publish_destination(*arguments, seal_key=seal_key("s"), kind="scheduler")
            assert (published.members, published.holds_seconds, published.reasons) == (4, SCHEDULE.valid, ())
            await stage.leader().leading.act()
            (found,) = (await listed(stage)).destinations
            assert (found.seal_key, found.operator, found.kind) == (seal_key("s"), key.address, "scheduler")
            stage.bonded.clear()
            stage.clock.next_slot()
            await stage.leader().leading.act()
            assert (await listed(stage)).destinations == ()
        finally:
            await server.stop()


async def _never(_message: bytes):
    yield b"", True


async def test_a_list_is_served_without_the_signatures_of_those_who_left(tmp_path: Path) -> None:
    async with committee_stage(tmp_path) as stage:
        await stage.leader().leading.act()
        gone = stage.others()[0]
        rest = tuple(member.entry for member in stage.members if member is not gone)
        now = CommitteeMembership.of(DOMAIN, rest)
        for member in stage.members:
            member.state.membership = now
        keeper = stage.keeper()
        keeper.membership = now
        assert (await refresh(keeper, stage.clock)).valid_after == SCHEDULE.slot_start(stage.clock())
        assert keeper.signed is not None
        assert len(keeper.signed.signatures) == 3


async def test_health_says_why(tmp_path: Path) -> None:
    async with committee_stage(tmp_path, 1) as stage:
        member = stage.membership.members[0]
        async with pinned_client(member.endpoint, member.tls_key_hash) as client:
            answer: httpx.Response = await client.get("/readyz")
            assert "no list" in answer.text
            assert (await client.get("/v1/list")).status_code == 503
            await stage.leader().leading.act()
            assert (await client.get("/readyz")).status_code == 200
            assert "troth_committee_relays 0.0" in (await client.get("/metrics")).text
