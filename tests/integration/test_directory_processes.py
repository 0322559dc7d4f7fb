"""`troth committee start` and `troth relay start` for real: relays publish, a list is signed, and a path is built."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from conftest import Anvil
from support.committee_processes import Processes, arguments_of, called, committee_processes

from troth.overlay.circuits.client import CircuitClient
from troth.overlay.directory.fetching import DirectoryClient
from troth.overlay.directory.listing import Listing, read_membership
from troth.testnet import forked
from troth.transport.errors import OverlayError
from troth.transport.https import pinned_client

pytestmark = [pytest.mark.slow, pytest.mark.chain]

PERIOD = 12
# A member has a fifth of the period for its checks, and a third to answer a leader: no less on a busy machine. While
# one of four members is away every other one has to find each relay in time, or its age begins anew.
SETTINGS = f"\n[list]\nperiod = {PERIOD}\nvalid = {4 * PERIOD}\nprivate_addresses = true\n\n[limits]\nper_host = 64\n"
SECONDS = 180.0
SIGNED = re.compile(r"^troth_committee_signed_total [1-9]", re.MULTILINE)


async def until(client: DirectoryClient, condition: Callable[[Listing], bool], processes: Processes) -> Listing:
    """Fetch until a list fulfils the condition."""
    give_up = time.monotonic() + SECONDS
    while True:
        try:
            listing = await client.refresh()
            if condition(listing):
                return listing
            seen: object = [one.relay.place.port for one in listing.relays], listing.valid_after
        except OverlayError as error:
            seen = error
        assert time.monotonic() < give_up, f"{seen}\n{processes.logs()}"
        await asyncio.sleep(0.3)


@pytest.mark.timeout(800)
async def test_relays_find_each_other_through_four_members(anvil: Anvil, tmp_path: Path) -> None:
    """In this order, since processes are slow to start: a list, a path, a killed member, its return, a lost relay."""
    with committee_processes(tmp_path, anvil.url) as processes:
        members = [processes.member(number)["member"] for number in range(4)]
        deployed = await asyncio.to_thread(processes.deploy, members, anvil.keys[5])
        assert deployed["threshold"] == 3
        for home in processes.homes:
            processes.configure(home, SETTINGS)
            processes.start("committee", home)
        membership = await read_membership(anvil.url, processes.committee)
        assert {f"{one.operator},0x{one.tls_key_hash.hex()},{one.endpoint}" for one in membership.members} == set(
            members
        )

        relays = [processes.relay(f"relay{number}") for number in range(4)]
        names = {relay.name for relay in relays}
        client = DirectoryClient.over(anvil.url, processes.committee, tmp_path / "list", lambda _: None, 0.5)
        first = await until(client, lambda listing: {one.relay.name for one in listing.relays} == names, processes)
        assert {one.relay for one in first.relays} == set(relays)
        assert {(one.region, one.bandwidth) for one in first.relays} == {("test", 1000)}
        assert len({one.relay.operator for one in first.relays}) == 4

        # A path over three of them builds only if each has learned of the next one from the list.
        await _path(relays[:3])
        await _path(relays[:0:-1])

        # Ages stay while lists go by, and while a member is killed and comes back. A list of a slot that begins after
        # the kill was made without that member.
        processes.kill(processes.homes[0])
        killed = time.time()
        later = await until(client, lambda listing: listing.valid_after > killed, processes)
        since = {one.relay.name: one.since for one in later.relays}
        assert since == {one.relay.name: one.since for one in first.relays}
        processes.start("committee", processes.homes[0])
        # It has forgotten who answered it. What it signs, it has checked whole; before that, as one of three, its
        # answer would decide alone.
        await _signs(members[0], processes)
        processes.kill(processes.homes[1])
        # A relay that is gone leaves the list.
        processes.kill(tmp_path / "relay3")
        killed_too = time.time()
        again = await until(
            client,
            lambda listing: listing.valid_after > killed_too and relays[3] not in [one.relay for one in listing.relays],
            processes,
        )
        assert first.valid_after < later.valid_after < again.valid_after
        assert {one.relay.name: one.since for one in again.relays} == {
            name: age for name, age in since.items() if name != relays[3].name
        }

        status = await asyncio.to_thread(called, "committee", "status", "--home", str(processes.homes[0]))
        assert status["member"]
        assert status["threshold"] == "3 of 4"
        assert sum("valid until" in line for line in status["lists"]) == 3
        findings = await asyncio.to_thread(_doctor, tmp_path / "relay0")
        assert findings["directory"]["ok"], findings


async def _signs(member: str, processes: Processes) -> None:
    """Wait until a member that was just started has signed a list."""
    _, tls_key_hash, endpoint = member.split(",")
    give_up = time.monotonic() + SECONDS
    async with pinned_client(endpoint, bytes.fromhex(tls_key_hash[2:])) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if SIGNED.search((await client.get("/metrics")).text):
                    return
            assert time.monotonic() < give_up, processes.logs()
            await asyncio.sleep(0.3)


async def _path(relays: list) -> None:
    client = CircuitClient()
    try:
        give_up = time.monotonic() + SECONDS
        while True:
            try:
                circuit = await client.build(relays)
                break
            except OverlayError:
                # A relay looks for a new list within seconds of its publication, not at once.
                assert time.monotonic() < give_up
                await asyncio.sleep(0.3)
        for hop in (1, 2, 3):
            await circuit.ping(hop)
    finally:
        await client.close()


def _doctor(home: Path) -> dict:
    command = arguments_of("relay", "doctor", "--home", str(home), "--json")
    run = forked.run(command, os.environ, SECONDS)
    return {finding["check"]: finding for finding in json.loads(run.stdout)}
