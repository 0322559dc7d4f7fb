"""Lists and descriptors: what is encoded comes back, and no bytes whatever raise anything but a refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.directory_lists import AFTER, DOMAIN, listing

from troth.committee.directory.proposal import VERSION, Proposal, decode_proposal, encode_proposal
from troth.committee.errors import RequestRefused
from troth.overlay.attestation.measurement import Attested, Measurement
from troth.overlay.circuits.descriptors import PinnedAddress, RelayDescriptor
from troth.overlay.directory.codec import decode_listing, encode_listing, is_literal
from troth.overlay.directory.descriptors import (
    SignedDestination,
    SignedRelay,
    decode_descriptor,
    encode_descriptor,
    operator_of,
)
from troth.overlay.directory.errors import DescriptorRefused, ListMalformed
from troth.overlay.directory.listing import ListedDestination, ListedRelay, Listing
from troth.overlay.directory.signing import SignedListing, decode_signed, encode_signed
from troth.protocol.types import address_from_bytes

hashes = st.binary(min_size=32, max_size=32)
hosts = st.ip_addresses().map(str).filter(is_literal)
ports = st.integers(1, 65_535)
operators = st.binary(min_size=20, max_size=20).map(address_from_bytes)
regions = st.from_regex(r"\A[a-z0-9-]{0,16}\Z")
signatures = st.binary(min_size=65, max_size=65)
places = st.builds(PinnedAddress, hosts, ports, hashes)
relays = st.builds(
    ListedRelay,
    st.builds(RelayDescriptor, places, hashes, operators),
    regions,
    st.integers(0, 2**32 - 1),
    st.integers(0, AFTER),
)
said = st.builds(Measurement, st.sampled_from(("tdx", "sev-snp")), hashes, st.just(b"") | hashes)
attested = st.none() | st.builds(Attested, said, st.integers(1, 2**53))
destinations = st.builds(
    ListedDestination,
    places,
    hashes,
    operators,
    st.sampled_from(["scheduler", "node"]),
    st.integers(0, 2**53),
    signatures,
    attested,
)


def unique(strategy, name):
    return st.lists(strategy, max_size=6, unique_by=name).map(lambda found: tuple(sorted(found, key=name)))


listings = st.builds(
    Listing,
    st.just(AFTER),
    st.integers(AFTER + 1, AFTER + 24 * 3600),
    unique(relays, lambda one: one.relay.name),
    unique(destinations, lambda one: one.place.name),
)
entries = {"host": hosts, "port": ports, "tls_key_hash": hashes, "issued": st.integers(0, 2**53)}
claims = {"measurement": st.text(max_size=9), "until": st.integers(0, 2**53)}
keys = {"signature": signatures, "tls_key": st.binary(max_size=128), "tls_signature": st.binary(max_size=128)}


@pytest.mark.slow
@given(listings)
def test_a_list_comes_back(made: Listing) -> None:
    assert decode_listing(encode_listing(made)) == made


@pytest.mark.slow
@given(listings, st.lists(signatures, max_size=32))
def test_a_signed_list_comes_back(made: Listing, found: list[bytes]) -> None:
    signed = SignedListing(encode_listing(made), tuple(found))
    assert decode_signed(encode_signed(signed)) == signed


@pytest.mark.slow
@given(st.builds(SignedRelay, **entries, **keys, handshake_key=hashes, region=regions, bandwidth=st.integers(0, 9)))
def test_a_relays_descriptor_comes_back_and_random_keys_are_refused(made: SignedRelay) -> None:
    assert decode_descriptor(encode_descriptor(made), SignedRelay) == made
    _refused(lambda: operator_of(made, DOMAIN), DescriptorRefused)


@pytest.mark.slow
@given(st.builds(SignedDestination, **entries, **keys, **claims, seal_key=hashes, kind=st.text(max_size=4)))
def test_a_destinations_descriptor_comes_back_and_random_keys_are_refused(made: SignedDestination) -> None:
    assert decode_descriptor(encode_descriptor(made), SignedDestination) == made
    _refused(lambda: operator_of(made, DOMAIN), DescriptorRefused)


@given(st.integers(0, 2**53), st.binary(max_size=99), st.lists(st.binary(max_size=99), max_size=5))
def test_a_proposal_comes_back(valid_after: int, previous: bytes, found: list[bytes]) -> None:
    proposal = Proposal(VERSION, valid_after, previous, found, found[::-1])
    assert decode_proposal(encode_proposal(proposal)) == proposal


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    for decode, error in (
        (decode_listing, ListMalformed),
        (decode_signed, ListMalformed),
        (lambda found: decode_descriptor(found, SignedRelay), DescriptorRefused),
        (lambda found: decode_descriptor(found, SignedDestination), DescriptorRefused),
        (decode_proposal, RequestRefused),
    ):
        _refused(lambda decode=decode: decode(data), error)


@pytest.mark.slow
@given(st.data())
def test_a_changed_byte_makes_another_list_or_none(data: st.DataObject) -> None:
    content = encode_listing(listing())
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_listing(bytes(changed))
    except ListMalformed:
        return
    assert found != listing()
    assert encode_listing(found) == bytes(changed)


def _refused(call, error: type[Exception]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError("it was taken")
