"""Blind signatures of members over tickets: dealing, signing, checking, and what colluders and outsiders try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from py_arkworks_bls12381 import G1Point, G2Point
from support.ticket_committee import TicketCommittee

from troth.protocol.committee import threshold
from troth.protocol.errors import InvalidSignature
from troth.protocol.tickets.curve import (
    ORDER,
    InvalidTicket,
    decode_key,
    decode_point,
    encode_point,
    is_pairing,
    point_of,
    scalar,
)
from troth.protocol.tickets.dealing import (
    EpochKeys,
    KeyDealing,
    deal,
    draw_polynomials,
    keys_of,
    require_dealing,
    require_shares,
    share_of,
    shares_for,
)
from troth.protocol.tickets.messages import (
    Spending,
    Ticket,
    TicketKey,
    TicketPayment,
    TicketSpending,
    name_of,
    spend_with,
)
from troth.protocol.tickets.purchases import Purchase, proof_of, root_of, ticket_secret, ticket_secrets
from troth.protocol.tickets.signing import (
    SignedName,
    are_signed,
    blind,
    combine,
    gather,
    invalid_among,
    is_signed,
    sign_blinded,
)
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address
from troth.scheduler.tabs.tickets import merged, unsigned_of

FIELD = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
SEED = bytes(range(32))
DOMAIN = Domain(31337, Address("0x000000000000000000000000000000000000dEaD"))
PAYEE = Address("0x1111111111111111111111111111111111111111")


@pytest.fixture(scope="module")
def committee() -> TicketCommittee:
    return TicketCommittee.dealt(members=7, threshold=5, denominations=2)


def test_any_five_of_seven_make_the_same_signature_and_four_make_none(committee: TicketCommittee) -> None:
    one = ticket_secret(SEED, 0)
    parts = {number: committee.part(number, one.point) for number in range(1, 8)}
    first = combine({number: parts[number] for number in (1, 2, 3, 4, 5)})
    assert first == combine({number: parts[number] for number in (7, 3, 6, 1, 2)})
    assert is_pairing(first, one.point, committee.keys.key(0))
    signature = combine({number: parts[number] for number in (1, 2, 3, 4, 5)}, one.blinding)
    assert is_signed(one.name, encode_point(signature), committee.keys.key(0))
    four = combine({number: parts[number] for number in (1, 2, 3, 4)}, one.blinding)
    assert not is_signed(one.name, encode_point(four), committee.keys.key(0))


def test_what_members_see_fits_every_name(committee: TicketCommittee) -> None:
    """For each request and each ticket there is a blinding that joins them: requests say nothing about tickets."""
    first, second = ticket_secret(SEED, 0), ticket_secret(SEED, 1)
    seen = committee.signed_blinded(first.point)
    key = committee.keys.key(0)
    assert is_pairing(seen, first.point, key)
    # Members, who know all shares, look at the signature that was spent: both requests could have led to it.
    spent, other = committee.signature(first), committee.signature(second)
    assert spent != other
    assert encode_point(seen) not in {spent, other}
    assert first.point != point_of(first.name)
    assert blind(first.name, first.blinding) == first.point


def test_a_signature_is_of_one_name_denomination_and_epoch(committee: TicketCommittee) -> None:
    one, other = ticket_secret(SEED, 0), ticket_secret(SEED, 1)
    signature = committee.signature(one)
    assert is_signed(one.name, signature, committee.keys.key(0))
    assert not is_signed(other.name, signature, committee.keys.key(0))
    assert not is_signed(one.name, signature, committee.keys.key(1))
    later = TicketCommittee.dealt(members=7, threshold=5, denominations=1, epoch=1)
    assert not is_signed(one.name, signature, later.keys.key(0))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(95),
        bytes(96),
        bytes(48) + (2).to_bytes(48, "big"),
        (1).to_bytes(48, "big") + (1).to_bytes(48, "big"),
        FIELD.to_bytes(48, "big") + (2).to_bytes(48, "big"),
        (2**384 - 1).to_bytes(48, "big") * 2,
    ],
    ids=["empty", "short", "zero", "order three", "off the curve", "not reduced", "above the field"],
)
def test_what_is_no_point_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidTicket):
        decode_point(data)


def test_what_is_no_key_is_refused() -> None:
    good = bytes(G2Point().to_xy_bytes_be())
    assert decode_key(good) == G2Point()
    for data in (b"", bytes(192), good[:-1] + bytes((good[-1] ^ 1,)), good + b"\0", _outside_of_the_subgroup()):
        with pytest.raises(InvalidTicket):
            decode_key(data)


def _outside_of_the_subgroup() -> bytes:
    """A point of G2's curve y² = x³ + 4 (1 + u), u² = -1, for x = n and the least n > 0 that has one.

    The subgroup has one in some 2^507 points of the curve: whichever comes first lies outside.
    """
    for x in range(1, 100):
        real, imaginary = (x**3 + 4) % FIELD, 4
        norm = pow(real**2 + imaginary**2, (FIELD + 1) // 4, FIELD)
        for root in (norm, -norm):
            half = (real + root) * pow(2, -1, FIELD) % FIELD
            first = pow(half, (FIELD + 1) // 4, FIELD)
            if first == 0:
                continue
            second = imaginary * pow(2 * first, -1, FIELD) % FIELD
            if ((first**2 - second**2) % FIELD, 2 * first * second % FIELD) == (real, imaginary):
                coordinates = (x, 0, first, second)
                return b"".join(one.to_bytes(48, "big") for one in coordinates)
    raise AssertionError("no such point")


def test_signatures_that_cancel_pass_a_plain_sum_and_no_batch(committee: TicketCommittee) -> None:
    one, other = ticket_secret(SEED, 0), ticket_secret(SEED, 1)
    right = [decode_point(committee.signature(ticket)) for ticket in (one, other)]
    shift = point_of(one.name) * scalar(12345)
    forged = [right[0] + shift, right[1] + (-shift)]
    key = committee.keys.key(0)
    assert is_pairing(forged[0] + forged[1], point_of(one.name) + point_of(other.name), key)
    batch = [
        SignedName(ticket.name, encode_point(signature), (0, 0))
        for ticket, signature in zip((one, other), forged, strict=True)
    ]
    assert not are_signed(batch, {(0, 0): key})


def test_a_batch_finds_who_is_wrong(committee: TicketCommittee) -> None:
    secrets = ticket_secrets(SEED, 9)
    keys = {(0, 0): committee.keys.key(0), (0, 1): committee.keys.key(1)}
    batch = [
        SignedName(one.name, committee.signature(one, place % 2), (0, place % 2)) for place, one in enumerate(secrets)
    ]
    assert are_signed(batch, keys)
    assert invalid_among(batch, keys) == []
    batch[3] = SignedName(batch[3].name, batch[4].signature, (0, 1))
    batch[8] = SignedName(batch[8].name, bytes(96), (0, 0))
    assert invalid_among(batch, keys) == [3, 8]
    with pytest.raises(InvalidTicket):
        are_signed([SignedName(batch[0].name, batch[0].signature, (7, 0))], keys)


def test_a_scheduler_looks_for_one_wrong_ticket_and_not_for_all(
    committee: TicketCommittee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends 16 wrong ones, or 64, costs it little more than one batch."""
    secrets = ticket_secrets(SEED, 16)
    keys = {(0, 0): committee.keys.key(0)}
    batch = [SignedName(one.name, committee.signature(one), (0, 0)) for one in secrets]
    assert unsigned_of(batch, keys) is None
    for place, signature in ((0, bytes(96)), (5, batch[6].signature), (15, batch[0].signature)):
        wrong = [*batch]
        wrong[place] = SignedName(batch[place].name, signature, (0, 0))
        assert unsigned_of(wrong, keys) == batch[place].name
    looked: list[int] = []

    def counted(tickets: Sequence[SignedName], known: Mapping[tuple[int, int], G2Point]) -> bool:
        looked.append(len(tickets))
        return are_signed(tickets, known)

    monkeypatch.setattr("troth.scheduler.tabs.tickets.are_signed", counted)
    all_wrong = [SignedName(one.name, two.signature, (0, 0)) for one, two in zip(batch, reversed(batch), strict=True)]
    assert unsigned_of(all_wrong, keys) == batch[0].name
    assert looked == [16, 8, 4, 2, 1]


def test_a_member_that_signs_nonsense_is_named_and_skipped(committee: TicketCommittee) -> None:
    secrets = ticket_secrets(SEED, 3)
    points = [one.point for one in secrets]
    answers = {number: committee.answer(number, points) for number in range(1, 8)}
    answers[2] = [encode_point(G1Point()) for _ in points]
    answers[4] = [b"nonsense"] * 3
    blindings = [one.blinding for one in secrets]
    gathered = gather(points, blindings, answers, committee.keys, 0)
    assert gathered.liars == {2, 4}
    for one, signature in zip(secrets, gathered.signatures, strict=True):
        assert is_signed(one.name, encode_point(signature), committee.keys.key(0))
    # Signatures of one member's in place of a blinded one, and blindings of other tickets: nothing passes as signed.
    with pytest.raises(InvalidTicket, match="signed nonsense"):
        gather(points, blindings, dict.fromkeys(range(1, 8), answers[1]), committee.keys, 0)
    answers[6] = answers[6][:2]
    with pytest.raises(InvalidTicket, match=r"4 members signed.*\[2, 4, 6\]"):
        gather(points, blindings, answers, committee.keys, 0)


def test_a_dealer_that_gives_another_share_is_found() -> None:
    polynomials = draw_polynomials(2, 3)
    dealing = deal(4, PAYEE, [PAYEE], polynomials)
    require_dealing(dealing, denominations=2, threshold=3)
    for number in (1, 2, 7):
        require_shares(dealing, number, shares_for(polynomials, number))
    wrong = shares_for(polynomials, 3)
    for bad in ((wrong[0], (wrong[1] + 1) % ORDER), wrong[:1], (wrong[0] + ORDER, wrong[1]), (-1, wrong[1])):
        with pytest.raises(InvalidTicket):
            require_shares(dealing, 3, bad)
    with pytest.raises(InvalidTicket):
        require_dealing(dealing, denominations=2, threshold=4)
    zero = KeyDealing(4, PAYEE, (PAYEE,), (dealing.commitments[0], (bytes(192),) * 3))
    with pytest.raises(InvalidTicket):
        require_dealing(zero, denominations=2, threshold=3)


def test_dealings_add_up_to_a_key_that_no_dealer_knows() -> None:
    dealers = [Address(f"0x{number:040x}") for number in (1, 2, 3)]
    polynomials = [draw_polynomials(1, 3) for _ in dealers]
    dealings = [deal(0, dealer, dealers, one) for dealer, one in zip(dealers, polynomials, strict=True)]
    keys = keys_of(dealings)
    secret = sum(one[0][0] for one in polynomials) % ORDER
    assert keys.key(0) == G2Point() * scalar(secret)
    shares = {number: share_of(shares_for(one, number) for one in polynomials)[0] for number in (2, 5, 6)}
    point = point_of(PAYEE)
    assert combine({number: sign_blinded(point, share) for number, share in shares.items()}) == point * scalar(secret)
    for number, share in shares.items():
        assert keys.key_of_member(0, number) == G2Point() * scalar(share)
    for others in ([dealings[0], dealings[0]], [dealings[0], deal(1, dealers[1], dealers, polynomials[1])]):
        with pytest.raises(InvalidTicket):
            keys_of(others)


def test_a_dealer_that_waits_cannot_cancel_the_others() -> None:
    """The last dealer commits to the others' sum, negated: the key would be zero, under which everybody signs."""
    dealers = [Address(f"0x{number:040x}") for number in (1, 2)]
    polynomials = draw_polynomials(1, 2)
    negated = tuple(tuple(-one % ORDER for one in polynomial) for polynomial in polynomials)
    with pytest.raises(InvalidTicket, match="Zero"):
        keys_of([deal(0, dealers[0], dealers, polynomials), deal(0, dealers[1], dealers, negated)])


def test_a_spending_is_for_one_payee_one_tab_and_one_fee(committee: TicketCommittee) -> None:
    one = ticket_secret(SEED, 0)
    said = TicketSpending(PAYEE, PAYEE, 5)
    ticket = Ticket(0, committee.signature(one), spend_with(one.secret, said, DOMAIN))
    assert name_of(ticket, said, DOMAIN) == one.name
    for other in (TicketSpending(PAYEE, PAYEE, 6), TicketSpending(DOMAIN.contract, PAYEE, 5)):
        assert name_of(ticket, other, DOMAIN) != one.name
    with pytest.raises(InvalidTicket):
        name_of(Ticket(0, ticket.signature[:-1], ticket.spending), said, DOMAIN)
    with pytest.raises(InvalidSignature):
        name_of(Ticket(0, ticket.signature, bytes(65)), said, DOMAIN)


def test_everything_of_a_purchase_follows_from_its_seed() -> None:
    assert ticket_secrets(SEED, 4) == ticket_secrets(SEED, 4)
    assert len({one.name for one in ticket_secrets(SEED, 50)}) == 50
    assert ticket_secret(SEED, 0) != ticket_secret(bytes(32), 0)
    for count in (0, 257):
        with pytest.raises(InvalidTicket):
            ticket_secrets(SEED, count)


def test_purchases_differ_in_every_field() -> None:
    base = Purchase(PAYEE, 1, 2, 3, ZERO_HASH)
    others = (
        Purchase(PAYEE, 2, 2, 3, ZERO_HASH),
        Purchase(PAYEE, 1, 3, 3, ZERO_HASH),
        Purchase(PAYEE, 1, 2, 4, ZERO_HASH),
    )
    assert len({one.identifier for one in (base, *others)}) == 4


def test_proofs_lead_to_the_root_for_every_size() -> None:
    points = [bytes((number,)) * 96 for number in range(11)]
    for count in range(1, 12):
        some = points[:count]
        roots = {root_of(some)}
        assert len(roots) == 1
        assert all(len(proof_of(some, index)) <= 4 for index in range(count))
    assert root_of(points[:3]) != root_of([points[1], points[0], points[2]])


def test_the_digest_of_keys_binds_every_commitment(committee: TicketCommittee) -> None:
    keys = committee.keys
    other = keys_of([deal(0, PAYEE, [PAYEE], draw_polynomials(2, 5))])
    mixed = EpochKeys(0, keys.operators, (keys.commitments[0][:4] + other.commitments[0][4:], keys.commitments[1]))
    assert mixed.keys_hash == keys.keys_hash
    assert mixed.digest != keys.digest


def test_payments_that_come_together_share_a_call() -> None:
    """Each key once, and every ticket still under its own."""

    def payment(keys: tuple[TicketKey, ...], places: tuple[int, ...]) -> TicketPayment:
        tickets = tuple(Ticket(place, b"", b"") for place in places)
        return TicketPayment(keys, Spending(PAYEE, PAYEE, 0, b"", tickets))

    cheap, dear = TicketKey(0, 0, b"a"), TicketKey(0, 1, b"b")
    keys, spendings = merged([payment((cheap, dear), (1, 0)), payment((dear,), (0, 0))])
    assert keys == [cheap, dear]
    assert [[ticket.key for ticket in one.tickets] for one in spendings] == [[1, 0], [1, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 3, 4, 7, 32])
def test_every_committee_that_there_may_be_signs(members: int) -> None:
    """The last of its members, whose numbers are the largest: Lagrange's weights are beyond a machine word then."""
    needed = threshold(members)
    committee = TicketCommittee.dealt(members=members, threshold=needed, denominations=1)
    one = ticket_secret(SEED, 3)
    last = range(members - needed + 1, members + 1)
    signature = combine({number: committee.part(number, one.point) for number in last}, one.blinding)
    assert is_signed(one.name, encode_point(signature), committee.keys.key(0))
