"""Which lists are believed: their one encoding, who must sign, when they hold, and that there is no way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.directory_lists import AFTER, DOMAIN, UNTIL, destination, listing, relay, secret

from troth.overlay.directory.codec import decode_listing, encode_listing
from troth.overlay.directory.descriptors import require_own_signature
from troth.overlay.directory.errors import (
    DescriptorRefused,
    ListForged,
    ListMalformed,
    ListNotYetValid,
    ListRefused,
    ListRolledBack,
    ListShortSigned,
    ListStale,
    SignedTwice,
    SignerUnknown,
)
from troth.overlay.directory.keeping import DirectoryKeeper
from troth.overlay.directory.listing import CommitteeMembership, ListedRelay
from troth.overlay.directory.signing import (
    SignedListing,
    assemble,
    decode_signed,
    encode_signed,
    of_members,
    sign_listing,
    verify,
)
from troth.protocol.committee import CommitteeMember, threshold
from troth.protocol.typed_data import Domain, address_of
from troth.protocol.types import Hash32

VECTOR = Path(__file__).parent / "data" / "directory_vector.json"
SECRETS = [secret(f"member {number}") for number in range(4)]
MEMBERS = frozenset(address_of(one) for one in SECRETS)
NOW = AFTER + 100


def signed(content: bytes, secrets: list[bytes], domain: Domain = DOMAIN) -> SignedListing:
    return assemble(content, {address_of(one): sign_listing(content, domain, one) for one in secrets})


def keeper() -> DirectoryKeeper:
    made = DirectoryKeeper()
    members = tuple(CommitteeMember(one, Hash32(bytes(31) + b"1"), "https://192.0.2.1") for one in MEMBERS)
    made.membership = CommitteeMembership.of(DOMAIN, members)
    return made


def at(host: str) -> ListedRelay:
    """A relay with this host."""
    one = relay(1)
    return replace(one, relay=replace(one.relay, place=replace(one.relay.place, host=host)))


CONTENT = encode_listing(listing())


def test_the_frozen_vector_still_holds() -> None:
    vector = json.loads(VECTOR.read_text(encoding="utf-8"))
    assert CONTENT.hex() == vector["content"]
    assert encode_signed(signed(CONTENT, SECRETS[:3])).hex() == vector["signed"]
    assert decode_listing(bytes.fromhex(vector["content"])) == listing()


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (32, 22)])
def test_more_than_two_thirds_must_sign(members: int, needed: int) -> None:
    assert threshold(members) == needed


@pytest.mark.parametrize("count", [3, 4])
def test_a_list_with_enough_signatures_is_believed_while_it_holds(count: int) -> None:
    for now in (AFTER, NOW, UNTIL - 1):
        assert verify(signed(CONTENT, SECRETS[:count]), MEMBERS, DOMAIN, now) == listing()


def test_stale_early_and_short_signed_lists_are_refused() -> None:
    with pytest.raises(ListStale):
        verify(signed(CONTENT, SECRETS), MEMBERS, DOMAIN, UNTIL)
    with pytest.raises(ListNotYetValid):
        verify(signed(CONTENT, SECRETS), MEMBERS, DOMAIN, AFTER - 1)
    for count in range(3):
        with pytest.raises(ListShortSigned):
            verify(signed(CONTENT, SECRETS[:count]), MEMBERS, DOMAIN, NOW)


def test_forged_foreign_and_repeated_signatures_are_refused() -> None:
    good = signed(CONTENT, SECRETS[:3])
    stranger = signed(CONTENT, [*SECRETS[:3], secret("stranger")])
    with pytest.raises(SignerUnknown):
        verify(stranger, MEMBERS, DOMAIN, NOW)
    assert verify(of_members(stranger, MEMBERS, DOMAIN), MEMBERS, DOMAIN, NOW)
    forged = SignedListing(CONTENT, (bytes(65), *good.signatures))
    with pytest.raises(ListForged):
        verify(forged, MEMBERS, DOMAIN, NOW)
    twice = SignedListing(CONTENT, (good.signatures[0], *good.signatures))
    swapped = SignedListing(CONTENT, good.signatures[::-1])
    for wrong in (twice, swapped, SignedListing(CONTENT, good.signatures[:1] * 3)):
        with pytest.raises(SignedTwice):
            verify(wrong, MEMBERS, DOMAIN, NOW)


def test_signatures_count_for_one_list_one_committee_and_one_chain_only() -> None:
    good = signed(CONTENT, SECRETS)
    other = encode_listing(replace(listing(), valid_until=UNTIL + 1))
    with pytest.raises((SignerUnknown, ListForged)):
        verify(SignedListing(other, good.signatures), MEMBERS, DOMAIN, NOW)
    for domain in (Domain(1, DOMAIN.contract), Domain(DOMAIN.chain_id, address_of(secret("another")))):
        with pytest.raises((SignerUnknown, ListForged)):
            verify(good, MEMBERS, domain, NOW)


def test_there_is_no_way_back_to_an_older_list() -> None:
    held = keeper()
    newer = encode_listing(listing(after=AFTER + 3600, until=UNTIL + 3600))
    old, new = (encode_signed(signed(content, SECRETS)) for content in (CONTENT, newer))
    assert held.offer(old, AFTER + 3600).valid_after == AFTER
    assert held.offer(new, AFTER + 3600).valid_after == AFTER + 3600
    with pytest.raises(ListRolledBack):
        held.offer(old, AFTER + 3600)
    twin = encode_signed(signed(encode_listing(listing(2, after=AFTER + 3600, until=UNTIL + 3600)), SECRETS))
    with pytest.raises(ListRolledBack):
        held.offer(twin, AFTER + 3600)
    assert held.offer(new, AFTER + 3600).valid_after == AFTER + 3600
    assert held.current(UNTIL + 3600) is None


def test_even_all_members_cannot_swap_a_seal_key() -> None:
    swapped = replace(destination(1), seal_key=secret("the members' own"))
    with pytest.raises(DescriptorRefused):
        require_own_signature(swapped, DOMAIN)
    require_own_signature(destination(1), DOMAIN)
    both = tuple(sorted((swapped, destination(2)), key=lambda one: one.place.name))
    content = encode_listing(replace(listing(), destinations=both))
    believed = keeper().offer(encode_signed(signed(content, SECRETS)), NOW)
    assert believed.destinations == (destination(2),)


@pytest.mark.parametrize(
    "changes",
    [
        {"valid_until": AFTER},
        {"valid_until": AFTER + 24 * 3600 + 1},
        {"relays": (relay(1), relay(1))},
        {"relays": tuple(reversed(listing().relays))},
        {"relays": (relay(1, since=AFTER + 1),)},
        {"relays": (replace(relay(1), region="Nowhere!"),)},
        {"relays": (replace(relay(1), region="x" * 17),)},
        {"relays": (replace(relay(1), bandwidth=-1),)},
        {"relays": (replace(relay(1), relay=replace(relay(1).relay, operator="")),)},
        {"relays": (at("a.example"),)},
        {"relays": (at("127.1"),)},
        {"relays": (at("fe80::1%eth0"),)},
        {"relays": (at("::ffff:10.0.0.1"),)},
        {"relays": (at("::ffff:a00:1"),)},
        {"relays": (at("2001:db8::0:1"),)},
        {"destinations": (replace(destination(1), kind="bank"),)},
        {"destinations": (replace(destination(1), seal_key=b"short"),)},
    ],
)  # fmt: skip
def test_what_cannot_stand_in_a_list_is_not_encoded(changes: dict) -> None:
    with pytest.raises(ListMalformed):
        encode_listing(replace(listing(), **changes))


def test_there_is_one_encoding() -> None:
    for wrong in (
        b"",
        CONTENT + b"\0",
        CONTENT[:-1],
        b"\x95" + CONTENT[1:].replace(b"\xa7eu-west", b"\xd9\x07eu-west"),
    ):
        with pytest.raises(ListMalformed):
            decode_listing(wrong)
    fields = msgspec.msgpack.decode(CONTENT)
    with pytest.raises(ListMalformed, match="version"):
        decode_listing(msgspec.msgpack.encode([1, *fields[1:]]))
    with pytest.raises(ListRefused):
        decode_signed(encode_signed(signed(CONTENT, SECRETS)) + b"\0")


def test_a_kept_list_that_was_changed_on_disk_is_left_out(tmp_path: Path) -> None:
    held = DirectoryKeeper(tmp_path / "list")
    held.membership = keeper().membership
    held.offer(encode_signed(signed(CONTENT, SECRETS)), NOW)
    again = DirectoryKeeper(tmp_path / "list")
    again.load(DOMAIN.contract, NOW)
    assert again.listing == held.listing
    assert [path.name for path in tmp_path.iterdir()] == ["list"]
    for now, contract in ((UNTIL, DOMAIN.contract), (NOW, "0xanother")):
        other = DirectoryKeeper(tmp_path / "list")
        other.load(contract, now)
        assert other.listing is None
    data = bytearray((tmp_path / "list").read_bytes())
    data[-400] ^= 1
    (tmp_path / "list").write_bytes(data)
    changed = DirectoryKeeper(tmp_path / "list")
    changed.load(DOMAIN.contract, NOW)
    assert changed.listing is None
