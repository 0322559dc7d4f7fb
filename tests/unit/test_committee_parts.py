"""The member's small parts: whose turn it is, what is common, what fits, what is on disk, what a file may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troth.committee.configuration import Bonding, load
from troth.committee.directory.admission import Bounds, EntryClaim, network_of, require_room
from troth.committee.directory.leading import common_entries
from troth.committee.directory.probing import Prober
from troth.committee.directory.schedule import Schedule
from troth.committee.directory.store import MemberStore
from troth.committee.errors import EntryRefused, Full, MemberConfigurationInvalid, SignedOther
from troth.committee.examining import examine
from troth.committee.initialisation import MemberInitOptions, initialise
from troth.committee.rating.member import RatingTerms
from troth.overlay.directory.errors import CommitteeUnknown
from troth.overlay.directory.listing import CommitteeMembership
from troth.protocol.committee import CommitteeMember, read_member
from troth.protocol.errors import InvalidField
from troth.protocol.market.parts import MarketPlace
from troth.protocol.typed_data import Domain
from troth.protocol.types import Hash32, address_from_bytes, to_address

CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
OPERATORS = [address_from_bytes(bytes([number]) * 20) for number in range(1, 8)]
NAMES = frozenset(bytes([number]) * 32 for number in range(10))


def membership(count: int) -> CommitteeMembership:
    members = tuple(CommitteeMember(one, Hash32(bytes(31) + b"1"), "https://192.0.2.1") for one in OPERATORS[:count])
    return CommitteeMembership.of(Domain(1, address_from_bytes(bytes(20))), members)


def test_everybody_leads_in_turn() -> None:
    schedule, four = Schedule(3600, 10_800), membership(4)
    turns = [schedule.leader(slot * 3600, four) for slot in range(100, 108)]
    assert turns[:4] == turns[4:]
    assert set(turns) == four.operators


@pytest.mark.parametrize(
    ("valid_after", "now", "expected"),
    [(7200, 7200, True), (7200, 7140, True), (7200, 7139, False), (7200, 10_859, True), (7200, 10_860, False),
     (7201, 7300, False)],
)  # fmt: skip
def test_a_slot_is_current_within_the_clocks_allowance(valid_after: int, now: float, expected: bool) -> None:
    assert Schedule(3600, 10_800).is_current(valid_after, now) is expected


def test_a_committee_without_members_is_none() -> None:
    with pytest.raises(CommitteeUnknown):
        membership(0)


def test_one_member_cannot_censor_alone() -> None:
    honest = dict.fromkeys(OPERATORS[:2], NAMES)
    for veto in (frozenset[bytes](), frozenset([bytes(32)]), frozenset([b"x" * 32])):
        assert common_entries(NAMES, {**honest, OPERATORS[2]: veto}, 3) == NAMES


def test_a_member_that_claims_more_is_no_better() -> None:
    invented = frozenset(bytes([200 + number]) * 32 for number in range(50))
    opinions = {OPERATORS[0]: NAMES, OPERATORS[1]: NAMES, OPERATORS[2]: invented}
    assert common_entries(NAMES, opinions, 3) == NAMES


def test_too_few_opinions_are_no_agreement() -> None:
    assert common_entries(NAMES, {OPERATORS[0]: NAMES}, 3) is None
    assert common_entries(NAMES, {}, 1) == NAMES


@pytest.mark.slow
@given(
    st.lists(st.frozensets(st.sampled_from(sorted(NAMES))), min_size=6, max_size=6),
    st.frozensets(st.sampled_from(sorted(NAMES))),
)
def test_enough_members_accept_every_common_entry(opinions: list[frozenset[bytes]], own: frozenset[bytes]) -> None:
    kept = common_entries(own, dict(zip(OPERATORS, opinions, strict=False)), 5)
    assert kept is not None
    assert kept <= own
    assert sum(kept <= opinion for opinion in opinions) >= 4


@pytest.mark.parametrize(
    ("claims", "fits"),
    [
        ([EntryClaim("a", f"192.0.{number}.1") for number in range(4)], True),
        ([EntryClaim("a", f"{number}.0.0.1") for number in range(1, 6)], False),
        ([EntryClaim(str(number), "192.0.2.1") for number in range(3)], False),
        ([EntryClaim(str(number), f"192.0.2.{number}") for number in range(5)], False),
        ([EntryClaim(str(number), f"{number}.0.0.1") for number in range(1, 8)], False),
        # A scheduler and the nodes behind its tunnels share an address.
        ([EntryClaim(str(number), "192.0.2.1", kind) for number, kind in enumerate(2 * ["scheduler", "node"])], True),
        ([EntryClaim(str(number), "192.0.2.1", "node") for number in range(3)], False),
    ],
)
def test_bounds_hold_for_operator_address_network_and_all(claims: list[EntryClaim], fits: bool) -> None:
    bounds = Bounds(per_operator=4, per_host=2, per_network=4, relays=6, destinations=6)
    if fits:
        require_room(claims, bounds, bounds.relays)
        return
    with pytest.raises(Full):
        require_room(claims, bounds, bounds.relays)


def test_networks_are_those_of_providers() -> None:
    assert network_of("203.0.113.9") == "203.0.0.0/16"
    assert network_of("2001:db8:1:2::3") == "2001:db8::/32"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "::1", "fd00::1"]
)
async def test_members_are_not_led_into_private_networks(host: str) -> None:
    with pytest.raises(EntryRefused):
        Prober(1, private=False).require_public(host)
    Prober(1, private=False).require_public("9.9.9.9")


def test_a_time_is_signed_once_and_never_an_earlier_one(tmp_path: Path) -> None:
    store = MemberStore(tmp_path / "member.sqlite")
    store.claim(7200, b"a" * 32, b"proposal")
    store.claim(7200, b"a" * 32, b"proposal")
    for valid_after, digest in ((7200, b"b"), (3600, b"a"), (0, b"c")):
        with pytest.raises(SignedOther):
            store.claim(valid_after, digest * 32, b"another")
    assert store.claimed(7200) == b"proposal"
    store.close()
    again = MemberStore(tmp_path / "member.sqlite")
    with pytest.raises(SignedOther):
        again.claim(7200, b"b" * 32, b"another")
    again.claim(10_800, b"b" * 32, b"next")
    assert again.newest_signed() == 10_800
    again.close()


def test_an_older_descriptor_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    store = MemberStore(tmp_path / "member.sqlite")
    for issued, data in ((2, b"new"), (1, b"old"), (2, b"same time")):
        store.put("relay", b"n" * 32, issued, data)
    assert list(store.descriptors("relay")) == [b"new"]
    store.drop_before(3)
    assert list(store.descriptors("relay")) == []
    store.close()


@pytest.mark.slow
async def test_init_writes_what_start_reads_and_nothing_twice(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    home = tmp_path / "member"
    wishes = MemberInitOptions("http://localhost:8545", "", Bonding(), "127.0.0.1", 8543, "https://203.0.113.5:8543")
    told = initialise(home, wishes, password)
    member = read_member(str(told["member"]))
    assert (member.operator, member.endpoint) == (told["operator"], wishes.endpoint)
    assert load(home).schedule == Schedule(3600, 10_800)
    with pytest.raises(MemberConfigurationInvalid, match="already"):
        initialise(home, wishes, password)
    with pytest.raises(MemberConfigurationInvalid, match=r"chain\.committee"):
        _ = load(home).committee_address
    assert [(one.check, one.ok) for one in await examine(home)] == [("config", False)]
    assert (home / "committee.toml").stat().st_mode & 0o777 == 0o600
    assert (home / "keys" / "operator.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "version = 2\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'http://a'",
        "version = 1\n[chain]\nrpc = 'r'\ncommittee = '0x12'\n[listen]\nendpoint = 'https://a'",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[limits]\nper_host = 0",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[limits]\nper_hots = 1",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[list]\nperiod = 10\nvalid = 19",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[list]\nvalid = 90000",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[market]\nfactory = ''",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n"
        f"[market]\nfactory = '{CONTRACT}'\nbank = '0x1'",
        f"version = 1\n[chain]\nrpc = 'r'\ncontract = '{CONTRACT}'\n[listen]\nendpoint = 'https://a'\n"
        f"[market]\nfactory = '{CONTRACT}'",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n[reputation]\ncontract = '0x12'",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n"
        f"[reputation]\ncontract = '{CONTRACT}'\nprompts = 0",
        "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n"
        f"[reputation]\ncontract = '{CONTRACT}'\nepochs = 7",
        "not toml",
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "committee.toml").write_text(text)
    with pytest.raises(MemberConfigurationInvalid):
        load(tmp_path)


def test_a_member_rates_where_its_file_says_so(tmp_path: Path) -> None:
    plain = "version = 1\n[chain]\nrpc = 'r'\n[listen]\nendpoint = 'https://a'\n"
    (tmp_path / "committee.toml").write_text(plain)
    assert load(tmp_path).rating is None
    (tmp_path / "committee.toml").write_text(f"{plain}[reputation]\ncontract = '{CONTRACT}'\nattempts = 1")
    rating = load(tmp_path).rating
    assert rating is not None
    assert (rating.contract.contract, rating.contract.start_block) == (to_address(CONTRACT), 0)
    assert (rating.client, rating.least, rating.agreeing) == (tmp_path / "asking", 4, 120)
    assert rating.terms == RatingTerms(prompts=4, tokens=2048, attempts=1)


@pytest.mark.slow
async def test_init_writes_the_market_that_is_followed(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    for bank, found in (("", None), (str(OPERATORS[0]), OPERATORS[0])):
        home = tmp_path / f"member{len(bank)}"
        bonding = Bonding(factory=CONTRACT, bank=bank, start_block=7)
        initialise(
            home,
            MemberInitOptions("http://localhost:8545", "", bonding, "127.0.0.1", 8543, "https://203.0.113.5"),
            password,
        )
        assert load(home).market == MarketPlace(to_address(CONTRACT), found, 7)


@pytest.mark.parametrize("text", ["", CONTRACT, f"{CONTRACT},0x12,https://a", f"0x12,0x{'0' * 64},https://a"])
def test_a_member_is_written_as_init_prints_it(text: str) -> None:
    with pytest.raises(InvalidField):
        read_member(text)
