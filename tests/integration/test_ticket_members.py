"""Members that sign tickets, over real TLS and real contracts: keys dealt together, purchases signed, faults named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec
import pytest
from conftest import Anvil, Deployed
from msgspec import structs
from support.ticket_members import MembersStage, members_stage

from troth.chain.deployment import submit
from troth.chain.keystore import DEMO_SCRYPT_N, create_account
from troth.client.configuration import ClientConfiguration
from troth.client.errors import TicketsUnusable
from troth.client.home import Home
from troth.client.market_table import MarketTable
from troth.client.tabs.managing import Purse
from troth.client.tickets import managing
from troth.client.tickets.members import ask_member, epoch_keys, signed_tickets
from troth.client.tickets.session import ticket_session
from troth.committee.errors import TicketsRefused
from troth.committee.tickets.keys import KeyProposal, TicketKeyMember, TicketKeyStore
from troth.committee.tickets.service import DEAL
from troth.protocol.committee import CommitteeMember
from troth.protocol.hashing import keccak256
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import G1_BYTES
from troth.protocol.tickets.purchases import Purchase, TicketSecret, points_of, root_of, ticket_secrets
from troth.protocol.tickets.signing import is_signed
from troth.protocol.tickets.wire import encode_request
from troth.transport.https import pinned_client

pytestmark = [pytest.mark.chain, pytest.mark.slow]

PRICES = (10**12, 10**13)
SECRETS = ticket_secrets(keccak256(b"tickets of tests"), 3)
SIGNATURES = "/v1/tickets/signatures"


@pytest.fixture
async def stage(anvil: Anvil, deployed: Deployed, tmp_path: Path) -> AsyncIterator[MembersStage]:
    async with members_stage(anvil, deployed.market.contracts.bank, tmp_path, prices=PRICES) as made:
        yield made


async def bought(stage: MembersStage, denomination: int = 1, secrets: tuple[TicketSecret, ...] = SECRETS) -> Purchase:
    payer = stage.anvil.keys[6]
    root = root_of(points_of(secrets))
    epoch = await stage.chain.read(messages.epoch_now())
    purchase = Purchase(payer.address, epoch, denomination, len(secrets), root)
    call = messages.buy(purchase, PRICES[denomination] * len(secrets))
    await submit(stage.anvil.url, call, payer, stage.chain.contract)
    return purchase


async def answered(stage: MembersStage, body: bytes, path: str = SIGNATURES) -> tuple[int, bytes]:
    """What the first member says to anybody."""
    member = stage.membership.members[0]
    async with pinned_client(member.endpoint, member.tls_key_hash) as client:
        response = await client.post(path, content=body)
    return response.status_code, response.content


async def test_members_deal_register_and_sign_without_anybodys_hand(stage: MembersStage) -> None:
    await stage.keys()
    digest = await stage.chain.read(messages.dealing_of(0))
    shares = [one.office.member.share(0, digest) for one in stage.members]
    assert len({one.shares for one in shares if one is not None}) == 4
    keys = await epoch_keys(stage.membership, 0, digest)
    purchase = await bought(stage)
    made = await signed_tickets(stage.membership, keys, purchase, SECRETS)
    assert made.liars == ()
    for one, signature in zip(SECRETS, made.signatures, strict=True):
        assert is_signed(one.name, signature, keys.key(1))
        assert not is_signed(one.name, signature, keys.key(0))
    # The next epoch's keys are there before it begins, and are others.
    assert await stage.chain.read(messages.dealing_of(1)) not in {bytes(32), digest}


async def test_a_member_that_signs_nonsense_is_named_and_one_that_is_silent_is_not_missed(stage: MembersStage) -> None:
    await stage.keys()
    keys = await epoch_keys(stage.membership, 0, await stage.chain.read(messages.dealing_of(0)))
    purchase, liar = await bought(stage), keys.operators[1]

    async def lying(member: CommitteeMember, method: str, path: str, body: bytes, largest: int) -> bytes:
        answer = await ask_member(member, method, path, body, largest)
        return answer[G1_BYTES:] + answer[:G1_BYTES] if member.operator == liar else answer

    made = await signed_tickets(stage.membership, keys, purchase, SECRETS, lying)
    assert made.liars == (liar,)
    assert is_signed(SECRETS[0].name, made.signatures[0], keys.key(1))
    silent = next(one for one in stage.members if one.staged.key.address not in {liar})
    await silent.stop()
    with pytest.raises(TicketsUnusable, match="2 members signed, 3 are needed"):
        await signed_tickets(stage.membership, keys, purchase, SECRETS, lying)
    made = await signed_tickets(stage.membership, keys, purchase, SECRETS)
    assert made.liars == ()


async def test_keys_come_without_a_dealer_that_lies_and_a_leader_that_is_dead(stage: MembersStage) -> None:
    """One member gives the others shares that it did not commit to; the one whose turn it is never wakes."""
    liar, dead = stage.members[3], stage.members[0]
    await dead.stop()
    operators = [one.operator for one in stage.membership.members]
    mine = liar.office.member.deal(0, operators)[stage.members[1].staged.key.address]
    wrong = structs.replace(mine, shares=[bytes(31) + b"\7"] * 2)
    with pytest.raises(TicketsRefused, match="did not commit"):
        stage.members[1].office.member.take(liar.staged.key.address, wrong, operators)
    with pytest.raises(TicketsRefused, match="deals for itself"):
        stage.members[1].office.member.take(dead.staged.key.address, mine, operators)
    await stage.keys(silent=(0,))
    await dead.start()
    digest = await stage.chain.read(messages.dealing_of(0))
    assert dead.office.member.share(0, digest) is None
    assert stage.members[1].office.member.share(0, digest) is not None


async def test_a_member_that_slept_while_keys_were_made_signs_once_it_is_awake(stage: MembersStage) -> None:
    """Otherwise whoever starts a second late is missing for the whole epoch, and one death more stops all sales."""
    late, gone = stage.members[0], stage.members[2]
    await late.stop()
    await stage.keys(silent=(0,))
    keys = await epoch_keys(stage.membership, 0, await stage.chain.read(messages.dealing_of(0)))
    await late.start()
    await stage.keys()
    await gone.stop()
    made = await signed_tickets(stage.membership, keys, await bought(stage), SECRETS)
    assert made.liars == ()
    for one, signature in zip(SECRETS, made.signatures, strict=True):
        assert is_signed(one.name, signature, keys.key(1))


async def test_keys_wait_for_a_member_that_comes_soon(stage: MembersStage) -> None:
    """Who is a few seconds late deals and signs with the others; who does not come is waited for, and then left out."""
    late = stage.members[0]
    await late.stop()
    for one in stage.members:
        one.turns.patience = 3600.0
    for one in stage.members[1:]:
        with suppress(TicketsRefused):
            await one.turns.turn()
    assert await stage.chain.read(messages.dealing_of(0)) == bytes(32)
    await late.start()
    late.turns.patience = 3600.0
    await stage.keys()
    digest = await stage.chain.read(messages.dealing_of(0))
    assert all(one.office.member.share(0, digest) is not None for one in stage.members)
    dealers = late.office.member.dealers(0, digest)
    assert dealers is not None
    assert len(dealers.dealers) == 4


async def test_a_dealer_deals_at_once_to_who_asks(stage: MembersStage) -> None:
    """Its process may be gone a minute later: then nobody else can give what it dealt."""
    late = stage.members[0]
    await late.stop()
    await stage.keys(silent=(0,))
    digest = await stage.chain.read(messages.dealing_of(0))
    for one in stage.members[1:]:
        one.turns.patience = 3600.0
        await one.turns.turn()
    await late.start()
    for one in (late, *stage.members[1:], late):
        with suppress(TicketsRefused):
            await one.turns.turn()
    assert late.office.member.share(0, digest) is not None


async def test_a_member_takes_no_dealers_but_those_of_the_keys_on_chain(stage: MembersStage) -> None:
    """What others say of the dealers is believed where the keys that follow are the chain's, and not otherwise."""
    late = stage.members[0]
    await late.stop()
    await stage.keys(silent=(0,))
    digest = await stage.chain.read(messages.dealing_of(0))
    right = stage.members[1].office.member.dealers(0, digest)
    assert right is not None
    await late.start()
    member = late.office.member
    assert stage.members[1].office.member.dealers(0, bytes(32)) is None
    with pytest.raises(TicketsRefused, match="holds no such dealing"):
        member.adopt(right, digest)
    for one in stage.members[1:]:
        await one.turns.turn()
    with pytest.raises(TicketsRefused, match="other keys than the chain"):
        member.adopt(KeyProposal(0, right.dealers[:2]), digest)
    with pytest.raises(TicketsRefused, match="other keys than the chain"):
        member.adopt(right, keccak256(b"other keys"))
    assert member.share(0, digest) is None
    member.adopt(right, digest)
    assert member.share(0, digest) is not None


async def test_a_dealers_first_dealing_stays(stage: MembersStage, tmp_path: Path) -> None:
    """Whoever deals twice could give some members shares of one key, and the others those of another."""
    dealer, receiver = stage.members[3], stage.members[1]
    operators = [one.operator for one in stage.membership.members]
    mine = receiver.staged.key.address
    first = dealer.office.member.deal(0, operators)[mine]
    receiver.office.member.take(dealer.staged.key.address, first, operators)
    held = receiver.office.member.holdings(0)
    store = TicketKeyStore(tmp_path / "forgetful.sqlite")
    again = TicketKeyMember(dealer.staged.key.secret, dealer.office.member.domain, len(PRICES), store)
    with pytest.raises(TicketsRefused, match="another dealing before"):
        receiver.office.member.take(dealer.staged.key.address, again.deal(0, operators)[mine], operators)
    store.close()
    assert receiver.office.member.holdings(0) == held
    receiver.office.member.take(dealer.staged.key.address, first, operators)


@pytest.mark.parametrize("spelled", [lambda text: "0x" + text[2:].lower(), lambda text: "??" + text[2:].upper()])
async def test_a_dealer_has_one_name(stage: MembersStage, spelled: Callable[[str], str]) -> None:
    """One that deals under two spellings of its address would be in every proposal twice, and no keys would follow."""
    dealer, receiver = stage.members[3], stage.members[1]
    operators = [one.operator for one in stage.membership.members]
    first = dealer.office.member.deal(0, operators)[receiver.staged.key.address]
    again = structs.replace(first, dealer=spelled(first.dealer))
    with pytest.raises(TicketsRefused, match="deals for itself"):
        receiver.office.member.take(dealer.staged.key.address, again, operators)
    for other in stage.members[:3]:
        given = dealer.office.member.deal(0, operators)[other.staged.key.address]
        body = msgspec.msgpack.encode(structs.replace(given, dealer=spelled(given.dealer)))
        assert await dealer.turns._ask(other.staged.key.address, DEAL, body, 0) == b""
        assert other.office.member.holdings(0) == {}
    await stage.keys()


async def test_a_purchase_is_signed_when_it_is_deep_enough_and_not_after_it_was_taken_back(stage: MembersStage) -> None:
    """A signature stays when a reorganisation takes its purchase back: it would be a ticket that nobody paid."""
    await stage.keys()
    for one in stage.members:
        one.office.confirmations = 3
    before = stage.anvil.rpc("evm_snapshot")
    request = encode_request(await bought(stage), points_of(SECRETS))
    for _ in range(3):
        status, said = await answered(stage, request)
        assert (status, b"does not know this purchase" in said) == (422, True)
        stage.anvil.mine(1)
    assert (await answered(stage, request))[0] == 200
    assert stage.anvil.rpc("evm_revert", before)
    stage.anvil.mine(8)
    status, said = await answered(stage, request)
    assert (status, b"does not know this purchase" in said) == (422, True)


async def test_a_share_is_of_the_keys_that_the_chain_names_now(stage: MembersStage) -> None:
    """A reorganisation may take back the keys of an epoch, and others come of more dealings."""
    operators = [one.operator for one in stage.membership.members]
    member, mine = stage.members[1].office.member, stage.members[1].staged.key.address
    for dealer in stage.members:
        member.take(dealer.staged.key.address, dealer.office.member.deal(0, operators)[mine], operators)
    held = sorted((dealer, bytes(digest)) for dealer, digest in member.holdings(0).items())
    digests = [member.sign(KeyProposal(0, dealers), 3)[0].digest for dealers in (held[:3], held)]
    found = [member.share(0, digest) for digest in (*digests, digests[0])]
    assert [one.keys.digest for one in found if one is not None] == [*digests, digests[0]]
    assert len({one.shares for one in found if one is not None}) == 2


async def test_requests_that_are_refused(stage: MembersStage) -> None:
    """Nothing is signed but the points of a purchase that was paid, all of them and in their order."""
    await stage.keys()
    points = points_of(SECRETS)
    unpaid = Purchase(stage.anvil.keys[6].address, 0, 1, 3, root_of(points))
    status, said = await answered(stage, encode_request(unpaid, points))
    assert (status, b"does not know this purchase" in said) == (422, True)
    purchase = await bought(stage)
    right = encode_request(purchase, points)
    status, first = await answered(stage, right)
    assert (status, len(first)) == (200, 3 * G1_BYTES)
    assert await answered(stage, right) == (200, first), "a replay is answered with the same bytes"
    other = (points[1], points[0], points[2])
    for wrong in (
        b"",
        right[:-1],
        right + b"\0",
        encode_request(purchase, other),
        encode_request(purchase, points[:2]),
        # The same tickets blinded otherwise, as for members that had not heard of the first ones.
        encode_request(purchase, points_of([replace(one, blinding=one.blinding + 1) for one in SECRETS])),
        encode_request(replace(purchase, denomination=0), points),
        encode_request(replace(purchase, epoch=1), points),
        encode_request(replace(purchase, buyer=stage.anvil.keys[5].address), points),
        b"\x95" + b"\xc1" * 40,
    ):
        status, said = await answered(stage, wrong)
        assert status == 422, said
    status, _ = await answered(stage, bytes(2**20))
    assert status == 503
    status, _ = await answered(stage, b"", "/v1/tickets/dealings")
    assert status == 400


async def test_points_off_the_curve_are_not_signed_even_if_they_were_paid(stage: MembersStage) -> None:
    await stage.keys()
    payer = stage.anvil.keys[6]
    for number, bad in enumerate((bytes(96), bytes(48) + (2).to_bytes(48, "big"), bytes(95) + b"\1")):
        points = (bad,)
        purchase = Purchase(payer.address, 0, 0, 1, root_of(points))
        await submit(stage.anvil.url, messages.buy(purchase, PRICES[0]), payer, stage.chain.contract)
        status, said = await answered(stage, encode_request(purchase, points))
        assert (status, b"point" in said.lower()) == (422, True), number


async def test_another_epochs_tickets_are_not_signed(anvil: Anvil, deployed: Deployed, tmp_path: Path) -> None:
    """A purchase of two epochs ago: its share is erased, and the chain would not take its tickets."""
    async with members_stage(anvil, deployed.market.contracts.bank, tmp_path, prices=PRICES, epoch_blocks=40) as stage:
        await stage.keys()
        purchase = await bought(stage)
        anvil.mine(80)
        status, said = await answered(stage, encode_request(purchase, points_of(SECRETS)))
        assert (status, b"are signed" in said) == (422, True)
        # Nobody else has dealt for the new epoch yet; what is old is erased all the same.
        with pytest.raises(TicketsRefused, match="Too few members"):
            await stage.members[0].turns.turn()
        assert stage.members[0].store.held(0) == {}


async def test_a_killed_member_goes_on_from_its_file(stage: MembersStage, tmp_path: Path) -> None:
    """Before and after each step: the same dealing, the same holdings, the same share, the same signatures."""
    member = stage.members[2]
    operators = [one.operator for one in stage.membership.members]
    before = member.office.member.deal(0, operators)
    await member.stop()
    await member.start()
    assert member.office.member.deal(0, operators) == before
    await stage.keys()
    purchase = await bought(stage)
    points = points_of(SECRETS)
    signed = await member.office.sign(purchase, points)
    held = member.office.member.holdings(0)
    await member.stop()
    await member.start()
    assert member.office.member.holdings(0) == held
    assert await member.office.sign(purchase, points) == signed


async def test_who_is_no_member_may_not_deal(stage: MembersStage) -> None:
    member = stage.membership.members[0]
    async with pinned_client(member.endpoint, member.tls_key_hash) as client:
        for path in ("dealings", "holdings", "proposals"):
            response: httpx.Response = await client.post(f"/v1/tickets/{path}", content=b"x")
            assert response.status_code == 400
    signer = stage.members[1].office.member
    with pytest.raises(TicketsRefused, match="3 dealings"):
        signer.sign(KeyProposal(0, [(one.operator, bytes(32)) for one in stage.membership.members[:2]]), 3)
    with pytest.raises(TicketsRefused, match="holds no such dealing"):
        signer.sign(KeyProposal(0, [(one.operator, bytes(32)) for one in stage.membership.members]), 3)


async def test_lost_tickets_come_back_to_the_wallet(anvil: Anvil, deployed: Deployed, tmp_path: Path) -> None:
    """What a client never spent is refunded once its epochs are over, and once."""
    place = deployed.market.place
    home, wallet = Home(tmp_path / "home"), anvil.keys[7]
    home.create()
    create_account(home.keystore, "password", scrypt_n=DEMO_SCRYPT_N, key=wallet)
    password = tmp_path / "password"
    password.write_text("password\n")
    password.chmod(0o600)
    purse = Purse(home, password, DEMO_SCRYPT_N)
    async with members_stage(anvil, place.contracts.bank, tmp_path, prices=PRICES, epoch_blocks=60) as stage:
        await stage.keys()
        table = MarketTable(place.factory, place.contracts.bank)
        named = ClientConfiguration(table, anvil.url, tickets=stage.chain.contract)
        # A client that was killed before it paid left this behind.
        async with ticket_session(purse, named) as session:
            session.prepared(wallet.address, 0, 1, 2)
        bought = await managing.buy(purse, named, f"{PRICES[1]}units", 3, broadcast=True)
        assert (bought["signed"], bought["unpaid"], bought["waiting"]) == (3, 1, [])
        assert await managing.refund(purse, named, broadcast=True) == []
        anvil.mine(120)
        assert (await managing.list_tickets(purse, named))["tickets"][1]["to_refund"] == 3
        before = await stage.chain.balance(stage.chain.contract)
        (refunded,) = await managing.refund(purse, named, broadcast=True)
        assert (refunded["tickets"], len(refunded["transactions"])) == (3, 1)
        assert await stage.chain.balance(stage.chain.contract) == before - 3 * PRICES[1] == 0
        assert await managing.refund(purse, named, broadcast=True) == []
