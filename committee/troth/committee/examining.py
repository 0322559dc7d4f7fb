"""`troth committee status` and `doctor`: what is, and what must be right, with the exact fix for what is not."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from troth.chain.errors import ChainError, KeystoreError
from troth.chain.keystore import address_in
from troth.committee.configuration import FILE, MemberConfiguration, load
from troth.committee.corpus.own import MAKE_ONE, said_of, warning_of
from troth.committee.errors import CommitteeError
from troth.overlay.directory.errors import DirectoryError, ListMalformed
from troth.overlay.directory.fetching import fetch_from
from troth.overlay.directory.keeping import DirectoryKeeper
from troth.overlay.directory.listing import CommitteeMembership, read_membership
from troth.protocol.committee import CommitteeMember, threshold
from troth.transport.errors import OverlayError
from troth.transport.health import HealthFinding
from troth.transport.identity import load_identity


async def status_of(folder: Path) -> dict[str, Any]:
    """The committee on chain, for whose machines this member vouches, and which list each member serves."""
    configuration = load(folder)
    membership = await read_membership(configuration.rpc, configuration.committee_address)
    operator = address_in(configuration.operator_keystore)
    own = None if operator is None else membership.member(operator)
    return {
        "operator": operator,
        "member": own is not None,
        "committee": configuration.committee_address,
        "threshold": f"{threshold(len(membership.members))} of {len(membership.members)}",
        "corpus": None if configuration.rating is None else said_of(configuration.rating.terms.corpus),
        "wear": None if configuration.rating is None else str(configuration.rating.terms.wear_in(folder)),
        "vouches_for": [] if configuration.attestation is None else configuration.attestation.told(),
        "lists": [await _list_of(member, membership) for member in membership.members],
    }


async def examine(folder: Path) -> list[HealthFinding]:
    """All checks; without a configuration there is only one."""
    try:
        configuration = load(folder)
        address = configuration.committee_address
    except (CommitteeError, KeystoreError) as error:
        return [HealthFinding("config", False, error.what, error.remedy)]
    findings = [HealthFinding("config", True, str(folder / FILE), ""), _tls(configuration), *_corpus(configuration)]
    try:
        membership = await read_membership(configuration.rpc, address)
        operator = address_in(configuration.operator_keystore)
    except (DirectoryError, ChainError, KeystoreError) as error:
        return [*findings, HealthFinding("chain", False, error.what, error.remedy)]
    findings.append(HealthFinding("chain", True, f"{len(membership.members)} members in {address}", ""))
    own = None if operator is None else membership.member(operator)
    if own is None:
        fix = "A member proposes it: troth committee members propose FILE --add …"
        return [*findings, HealthFinding("member", False, f"{operator} is no member", fix)]
    return [*findings, _registered(configuration, own), *await _served(own, membership)]


def _tls(configuration: MemberConfiguration) -> HealthFinding:
    try:
        return HealthFinding("tls", True, "0x" + load_identity(configuration.tls_folder).spki_sha256.hex(), "")
    except OverlayError as error:
        return HealthFinding("tls", False, error.what, error.remedy)


def _corpus(configuration: MemberConfiguration) -> list[HealthFinding]:
    """Of what challenges are made, where this member rates nodes."""
    if configuration.rating is None:
        return []
    terms = configuration.rating.terms
    found = HealthFinding("corpus", warning_of(terms.corpus) is None, said_of(terms.corpus), MAKE_ONE)
    try:
        wear = terms.wear_in(configuration.folder)
    except CommitteeError as error:
        return [found, HealthFinding("wear", False, error.what, error.remedy)]
    return [found, HealthFinding("wear", not wear.is_near, str(wear), wear.remedy)]


def _registered(configuration: MemberConfiguration, own: CommitteeMember) -> HealthFinding:
    here = ""
    with contextlib.suppress(OverlayError):
        here = load_identity(configuration.tls_folder).spki_sha256.hex()
    same = own.tls_key_hash.hex() == here and own.endpoint == configuration.endpoint
    seen = f"{own.endpoint} with TLS key 0x{own.tls_key_hash.hex()} is registered"
    fix = "Correct listen.endpoint, or propose it: troth committee members propose FILE --move …"
    return HealthFinding("member", same, seen, fix)


async def _served(own: CommitteeMember, membership: CommitteeMembership) -> list[HealthFinding]:
    found = []
    for member in (own, *(one for one in membership.members if one != own)):
        seen = await _list_of(member, membership)
        fix = "Start it: troth committee start" if member == own else "Tell that member's operator."
        found.append(HealthFinding("list", "valid until" in seen, seen, fix))
    return found


async def _list_of(member: CommitteeMember, membership: CommitteeMembership) -> str:
    try:
        data = await fetch_from(member)
        if data is None:
            raise ListMalformed("It says that the list is known already")
        keeper = DirectoryKeeper()
        keeper.membership = membership
        listing = keeper.offer(data, time.time())
    except OverlayError as error:
        return f"{member.endpoint}: {error}"
    return (
        f"{member.endpoint}: {len(listing.relays)} relays, {len(listing.destinations)} destinations, "
        f"valid until {listing.valid_until}"
    )
