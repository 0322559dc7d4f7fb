"""Machines before a committee: evidence is verified by each member, listed where they agree, and not believed twice."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from support.committee_stage import DOMAIN, Stage, committee_stage, key_named, seal_key
from support.made_up_machine import MadeUpMachine, made_up_vendor
from support.waiting import eventually

from troth.committee.configuration import load
from troth.committee.directory.vouching import MOST_USED, NONCE_SECONDS, Nonces
from troth.committee.errors import EntryRefused, Full, MemberConfigurationInvalid
from troth.overlay.attestation.binding import Binding
from troth.overlay.attestation.errors import AttestationError, EvidenceMisbound, MachineUnable
from troth.overlay.attestation.evidence import MachineEvidence
from troth.overlay.attestation.measurement import Attested, Measurement
from troth.overlay.attestation.policy import VENDORS
from troth.overlay.circuits.descriptors import PinnedAddress
from troth.overlay.directory import attesting, publishing
from troth.overlay.directory.attesting import AttestedParty, ShownMachine, attest, decode_showing, encode_showing
from troth.overlay.directory.errors import DescriptorRefused, DirectoryUnavailable
from troth.overlay.directory.fetching import refresh
from troth.overlay.directory.listing import CommitteeMembership
from troth.overlay.directory.publishing import publish_destination
from troth.overlay.relay.delivery_server import DeliveryServer
from troth.overlay.sessions import entry as entries
from troth.overlay.sessions.entry import EntryKeys, OverlayEntry, overlay_entry, vouched_machines
from troth.overlay.sessions.entry_section import ConfidentialEntry
from troth.testnet.ports import free_port
from troth.transport.https import pinned_client
from troth.transport.identity import TlsIdentity, create_identity

pytestmark = pytest.mark.slow
KEY, SEAL = key_named("attested"), seal_key("attested")


@dataclass
class Entered:
    """A node's entry that listens, as its committee sees it."""

    stage: Stage
    identity: TlsIdentity
    place: PinnedAddress
    machine: MadeUpMachine

    @property
    def party(self) -> AttestedParty:
        return AttestedParty(self.identity.spki_sha256, SEAL, KEY.address, "node")

    async def attested(self, attester: Any = None) -> Attested:
        return await attest(attester or self.machine, self.party, self.stage.membership)

    async def publish(self, attested: Attested | None) -> None:
        membership = self.stage.membership
        # The descriptor names the real time, which passes on a busy machine.
        self.stage.clock.now = max(self.stage.clock.now, time.time())
        await publish_destination(
            KEY.secret, self.identity, self.place, membership, seal_key=SEAL, kind="node", attested=attested
        )

    async def listed(self) -> list[Attested | None]:
        await self.stage.leader().leading.act()
        listing = await refresh(self.stage.keeper(), self.stage.clock)
        return [one.attested for one in listing.destinations]


@asynccontextmanager
async def entered(folder: Path, members: int = 3, **settings: Any) -> AsyncIterator[Entered]:
    settings = {"policy": made_up_vendor().policy()} | settings
    async with committee_stage(folder, members, **settings) as stage:
        stage.bonded.add((KEY.address, "node"))
        identity = create_identity(folder / "node")
        server = DeliveryServer(identity, lambda _link: None)  # type: ignore[arg-type,return-value]
        port = await server.start("127.0.0.1", 0)
        try:
            place = PinnedAddress("127.0.0.1", port, identity.spki_sha256)
            yield Entered(stage, identity, place, MadeUpMachine())
        finally:
            await server.stop()


async def test_what_members_found_is_listed_and_outlives_a_restart(tmp_path: Path) -> None:
    async with entered(tmp_path) as node:
        found = await node.attested()
        assert found.measurement.machine == "sev-snp"
        assert found.until <= node.stage.clock() + 3 * 3600
        await node.publish(found)
        for member in node.stage.members:
            await member.stop()
            await member.start(node.stage.membership)
        assert await node.listed() == [found]


@pytest.mark.parametrize("said", [b'{"measurement": "\xff", "until": 1}', b'{"more": ' + b"[" * 4000])
async def test_a_member_whose_answer_cannot_be_read_keeps_nobody_from_being_attested_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """Bytes that are no text, and brackets without end: one member of four kept confidential entries off the list."""
    async with entered(tmp_path, 4) as node:
        liar = node.stage.membership.members[0]
        ask, start = attesting._asked, publishing._start_of

        async def asked(client: httpx.AsyncClient, member: Any, method: str, path: str, body: bytes = b"") -> bytes:
            answer = await ask(client, member, method, path, body)
            return said if member == liar and method == "POST" else answer

        async def start_of(response: httpx.Response) -> bytes:
            answer = await start(response)
            return said if str(response.url).startswith(liar.endpoint) else answer

        monkeypatch.setattr(attesting, "_asked", asked)
        monkeypatch.setattr(publishing, "_start_of", start_of)
        found = await node.attested()
        await node.publish(found)
        assert await node.listed() == [found]


async def test_a_claim_that_no_member_verified_is_not_listed(tmp_path: Path) -> None:
    async with entered(tmp_path) as node:
        found = await node.attested()
        for claimed in (
            replace(found, until=found.until + 1),
            replace(found, measurement=Measurement("tdx", bytes(32))),
        ):
            with pytest.raises(DescriptorRefused, match="0 of 3"):
                await node.publish(claimed)
        # Without a claim it is listed as any other.
        await node.publish(None)
        assert await node.listed() == [None]


async def test_a_member_that_found_nothing_keeps_the_claim_out_where_its_vote_is_needed(tmp_path: Path) -> None:
    async with entered(tmp_path) as node:
        found = await node.attested()
        await node.publish(found)
        node.stage.others()[0].vouching._found.clear()
        assert await node.listed() == []


class Recorder:
    """Shows the same evidence to every member, as one would that recorded it."""

    def __init__(self, machine: MadeUpMachine) -> None:
        self.machine = machine
        self.kept: MachineEvidence | None = None

    async def evidence(self, binding: Binding) -> MachineEvidence:
        self.kept = self.kept or self.machine.evidence_of(binding)
        return self.kept


class Mute:
    """A machine that has lost its quoting device."""

    async def evidence(self, _binding: Binding) -> MachineEvidence:
        raise MachineUnable("This machine gives no quote", None, "Repair it.")


@pytest.mark.parametrize("able", [True, False])
async def test_an_entry_shows_its_machine_by_itself_and_keeps_its_seal_key_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    """One whose machine says nothing is listed all the same, for the anonymous tier."""
    async with committee_stage(tmp_path, 3, policy=made_up_vendor().policy()) as stage:
        stage.bonded.add((KEY.address, "node"))

        async def membership(_rpc: str, _contract: object) -> CommitteeMembership:
            return stage.membership

        monkeypatch.setattr(entries, "read_membership", membership)
        attester: Any = MadeUpMachine() if able else Mute()
        port = free_port()
        confidential = ConfidentialEntry(attester, frozenset())
        entry = OverlayEntry("127.0.0.1", port, ("127.0.0.1", port), DOMAIN.contract, 3600.0, confidential)
        keys = EntryKeys("node", KEY.secret, create_identity(tmp_path / "node"), tmp_path / "seal.pem")
        async with overlay_entry(entry, "", keys, FastAPI(), CollectorRegistry()):
            await eventually(lambda: all(one.state.admission.entries().destinations for one in stage.members))
            stage.clock.now = max(stage.clock.now, time.time())
            await stage.leader().leading.act()
            (listed,) = (await refresh(stage.keeper(), stage.clock)).destinations
        assert (listed.attested is not None) == able
        assert not (tmp_path / "seal.pem").exists()


async def test_without_a_list_a_confidential_party_speaks_to_nobody(tmp_path: Path) -> None:
    trusted = frozenset({Measurement("tdx", bytes(32))})
    entry = OverlayEntry("", 0, ("", 0), DOMAIN.contract, 3600.0, ConfidentialEntry(MadeUpMachine(), trusted))
    async with vouched_machines(entry, "http://127.0.0.1:1", tmp_path / "directory") as machines:
        assert machines is not None
        assert machines.trusted == trusted
        assert machines.entry(KEY.address, "node", bytes(32)) is None
        with pytest.raises(DirectoryUnavailable, match="does not vouch"):
            machines.require(KEY.address, "node", bytes(32))
    # Whoever is not confidential serves anybody.
    async with vouched_machines(replace(entry, confidential=None), "", tmp_path) as machines:
        assert machines is None


async def test_recorded_evidence_serves_one_member_once(tmp_path: Path) -> None:
    async with entered(tmp_path) as node:
        with pytest.raises(AttestationError, match="1 of 3 members") as refused:
            await node.attested(Recorder(node.machine))
        assert "another nonce" in str(refused.value)
        member = node.stage.members[0]
        shown = await posted(node, member.vouching.nonce())
        assert (await member.vouching.take(shown, DOMAIN)).measurement
        with pytest.raises(EvidenceMisbound, match="used before"):
            await member.vouching.take(shown, DOMAIN)


async def posted(node: Entered, nonce: bytes, **changes: Any) -> ShownMachine:
    party = node.party
    binding = Binding(nonce, party.tls_key_hash, party.seal_key, party.operator, party.kind, DOMAIN)
    made = ShownMachine(
        nonce, party.tls_key_hash, party.seal_key, party.operator, party.kind, node.machine.evidence_of(binding)
    )
    return replace(made, **changes)


async def test_a_member_verifies_for_bonded_parties_and_for_the_keys_that_are_named(tmp_path: Path) -> None:
    async with entered(tmp_path, 1) as node:
        vouching = node.stage.members[0].vouching
        with pytest.raises(EntryRefused, match="bonded"):
            await vouching.take(await posted(node, vouching.nonce(), kind="scheduler"), DOMAIN)
        for changes in ({"tls_key_hash": b"o" * 32}, {"seal_key": b"o" * 32}):
            with pytest.raises(EvidenceMisbound):
                await vouching.take(await posted(node, vouching.nonce(), **changes), DOMAIN)
        assert vouching._found == {}


async def test_a_member_without_the_table_vouches_for_nobody(tmp_path: Path) -> None:
    async with entered(tmp_path, 1, policy=None) as node:
        with pytest.raises(AttestationError, match="vouches for no machine"):
            await node.attested()


async def test_nonces_are_a_member_s_own_and_end() -> None:
    now = [1_800_000_000.0]
    nonces, others = Nonces(lambda: now[0]), Nonces(lambda: now[0])
    nonce = nonces.new()
    nonces.use(nonce)
    for wrong in (nonce, others.new(), b"", bytes(32), nonces.new()[:-1] + b"x"):
        with pytest.raises(EvidenceMisbound):
            nonces.use(wrong)
    late = nonces.new()
    now[0] += NONCE_SECONDS + 1
    with pytest.raises(EvidenceMisbound, match="holds for"):
        nonces.use(late)
    now[0] += 1
    # Old ones are forgotten; a crowd is refused before memory is.
    nonces.use(nonces.new())
    assert len(nonces._used) == 1
    nonces._used.update({bytes([0, *number.to_bytes(31)]): now[0] for number in range(MOST_USED)})
    with pytest.raises(Full):
        nonces.use(nonces.new())


async def test_huge_and_broken_evidence_costs_a_refusal(tmp_path: Path) -> None:
    async with entered(tmp_path, 1) as node:
        (member,) = node.stage.membership.members
        async with pinned_client(member.endpoint, member.tls_key_hash) as client:
            for body in (b"", b"\xc1" * 1000, bytes(600_000)):
                answer: httpx.Response = await client.post("/v1/attestations", content=body)
                assert answer.status_code in {422, 503}, answer.text
                assert answer.json()["remedy"] is not None


async def test_a_showing_comes_back(tmp_path: Path) -> None:
    async with entered(tmp_path, 1) as node:
        shown = await posted(node, bytes(32))
        assert decode_showing(encode_showing(shown)) == shown


def test_no_file_can_name_a_root(tmp_path: Path) -> None:
    text = (
        'version = 1\n[chain]\nrpc = "http://127.0.0.1:1"\n[listen]\nendpoint = "https://127.0.0.1:1"\n'
        "[attestation]\ntdx = true\nmilan = [4, 0, 24, 219]\n"
    )
    (tmp_path / "committee.toml").write_text(text)
    policy = load(tmp_path).attestation
    assert policy is not None
    assert policy.roots is VENDORS
    assert (policy.tdx, policy.nvidia, dict(policy.sev_snp)) == (True, False, {"Milan": (4, 0, 24, 219)})
    assert policy.told() == ["tdx", "Milan from (4, 0, 24, 219)"]
    for more in ('root = "00"\n', 'roots = ["a"]\n', "turin = [1, 2, 3, 4]\n", "genoa = [1, 2, 3]\n"):
        (tmp_path / "committee.toml").write_text(text + more)
        with pytest.raises(MemberConfigurationInvalid):
            load(tmp_path)
