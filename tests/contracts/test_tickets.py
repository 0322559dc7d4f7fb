"""The deployed Tickets over a real Bank, and troth.protocol.tickets beside it: both say the same of every ticket."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from conftest import Anvil
from py_arkworks_bls12381 import G1Point
from support.tickets_stage import TicketsStage, tickets_stage, with_signature

from troth.chain.adapter import Chain
from troth.chain.deployment import estimate, submit
from troth.chain.errors import ChainRejected
from troth.chain.keystore import Key
from troth.protocol.bindings import TICKETS
from troth.protocol.bindings.structs import encode_values
from troth.protocol.calls import Call, View, calldata
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import build, view
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Tab, TabState, Voucher
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import InvalidTicket, decode_point, encode_point, point_of, scalar
from troth.protocol.tickets.messages import PayerCall, PayerOrder
from troth.protocol.tickets.purchases import Purchase, points_of, root_of, ticket_secrets
from troth.protocol.tickets.signing import is_signed
from troth.protocol.typed_data import domain_separator
from troth.protocol.types import Address

pytestmark = pytest.mark.chain

EPOCH = 2_000
SCHEDULER = Key.from_secret(keccak256(b"a scheduler of tickets"))


@pytest.fixture
async def stage(anvil: Anvil) -> AsyncIterator[TicketsStage]:
    made = await tickets_stage(anvil.url, anvil.keys[4], anvil.mine, epoch_blocks=EPOCH)
    yield made
    await made.chain.close()
    await made.market.close()


async def tab_state(stage: TicketsStage, tab: Tab) -> TabState:
    asked = view(stage.market.contracts, Part.BANK, "tabOf", tab_id(tab), returns=TabState)
    found: TabState = await stage.market.read(asked)
    return found


async def test_python_and_the_contract_agree_on_every_ticket(stage: TicketsStage) -> None:
    """Signatures that are right, shifted, exchanged, negated, of another denomination, off the curve, too short."""
    source, key = random.Random(7), stage.signers[0].keys.key(1)
    bought, cheap = await stage.buy(1, 4), await stage.buy(0, 1)
    tab_key = Key.generate()
    spending = await stage.spending(bought, [0], SCHEDULER.address, tab_key, 0)
    good = decode_point(spending.tickets[0].signature)
    one = bought.secrets[0]
    outside = bytes(48) + (2).to_bytes(48, "big")
    candidates = [
        encode_point(good),
        encode_point(good + point_of(one.name)),
        encode_point(-good),
        encode_point(good * scalar(source.randrange(2, 2**200))),
        stage.signers[0].signature(bought.secrets[1], 1),
        stage.signers[0].signature(one, 0),
        stage.signers[0].signature(cheap.secrets[0], 0),
        encode_point(G1Point()),
        outside,
        bytes(96),
        encode_point(good)[:-1],
        encode_point(good)[:-1] + bytes((encode_point(good)[-1] ^ 1,)),
    ]
    for signature in candidates:
        try:
            ours = is_signed(one.name, signature, key)
        except InvalidTicket:
            ours = False
        call = messages.spend([stage.key_of(bought.purchase)], [with_signature(spending, 0, signature)])
        try:
            await estimate(stage.url, call, SCHEDULER.address, stage.chain.contract)
            theirs = True
        except ChainRejected:
            theirs = False
        assert ours == theirs, signature.hex()
    assert is_signed(one.name, candidates[0], key)


async def test_tickets_fill_a_tab_that_pays_orders_and_change_comes_back(stage: TicketsStage) -> None:
    """The whole way of the money: wallet, tickets, a tab of the real Bank, a voucher, change, the next tickets."""
    start = await stage.chain.balance(stage.chain.contract)
    bought = await stage.buy(2, 3)
    tab_key, price = Key.generate(), stage.rules.prices[2]
    spending = await stage.spending(bought, [0, 2], SCHEDULER.address, tab_key, 1000)
    await stage.spend(bought, spending)
    payer = await stage.chain.read(messages.payer_of(tab_key.address))
    tab = Tab(payer, SCHEDULER.address, tab_key.address)
    assert (await tab_state(stage, tab)).balance == 2 * price - 2000
    assert await stage.chain.balance(SCHEDULER.address) >= 2000

    voucher = Voucher(tab_id(tab), price // 3, price // 3, 1, 1, 0)
    signature = sign(voucher, stage.market.domain, tab_key.secret).signature
    await stage.market.execute(build(stage.market.contracts, Part.BANK, "redeem", tab, voucher, signature), stage.payer)

    async with await Chain.connect(stage.url, payer) as purse:

        async def command(calls: list[PayerCall], fee: int = 0) -> None:
            number = await purse.read(messages.payer_nonce())
            last = await purse.block_number() + 10
            order = PayerOrder(tuple(calls), fee, number, last)
            made = messages.command(messages.errand(order, purse.domain, tab_key.secret))
            await submit(stage.url, made, stage.payer, payer)

        bank = stage.market.contracts.bank
        await command([PayerCall(bank, 0, build(stage.market.contracts, Part.BANK, "close", tab).call.data)])
        stage.mine((await tab_state(stage, tab)).closes_at - await stage.chain.block_number())
        finish = build(stage.market.contracts, Part.BANK, "finishClosing", tab)
        await stage.market.execute(finish, stage.payer)
        rest = 2 * price - 2000 - price // 3
        assert await purse.balance(payer) == rest

        count = rest // stage.rules.prices[1]
        smaller = ticket_secrets(keccak256(tab_key.secret), count)
        epoch = await stage.chain.read(messages.epoch_now())
        change = Purchase(payer, epoch, 1, count, root_of(points_of(smaller)))
        cost = count * stage.rules.prices[1]
        await command([PayerCall(stage.chain.contract, cost, messages.buy(change, cost).data)], rest - cost)
        assert await stage.chain.read(messages.is_purchase(change.identifier))
        assert await purse.balance(payer) == 0
    worth = price + cost
    assert await stage.chain.balance(stage.chain.contract) == start + worth


async def test_a_second_scheduler_gets_nothing_for_the_same_ticket(stage: TicketsStage) -> None:
    bought = await stage.buy(1, 1)
    first = await stage.spending(bought, [0], SCHEDULER.address, Key.generate(), 0)
    tab_key = Key.generate()
    second = await stage.spending(bought, [0], stage.payer.address, tab_key, 0)
    await stage.spend(bought, first)
    assert await stage.chain.read(messages.spent([bought.secrets[0].name])) == 1
    await stage.spend(bought, second)
    payer = await stage.chain.read(messages.payer_of(tab_key.address))
    assert not (await tab_state(stage, Tab(payer, stage.payer.address, tab_key.address))).known


async def test_a_lost_ticket_comes_back_after_its_epoch(stage: TicketsStage) -> None:
    """Of every place of a purchase whose tree is uneven; only after the next epoch, and once."""
    buyer = Key.generate()
    await submit(stage.url, Call("a transfer", b"", 10**17), stage.payer, buyer.address)
    bought = await stage.buy(1, 5, buyer)
    lost = [bought.lost(place) for place in range(5)]
    with pytest.raises(ChainRejected):
        await stage.send(messages.refund(bought.purchase, lost))
    await stage.to_epoch(2)
    before = await stage.chain.balance(buyer.address)
    await stage.send(messages.refund(bought.purchase, lost))
    assert await stage.chain.balance(buyer.address) == before + 5 * stage.rules.prices[1]
    with pytest.raises(ChainRejected):
        await stage.send(messages.refund(bought.purchase, lost[:1]))


async def test_names_of_purchases_and_domains_are_the_same(stage: TicketsStage) -> None:
    bought = await stage.buy(0, 3)
    assert await stage.chain.read(messages.is_purchase(bought.purchase.identifier))
    encoded = encode_values(["(address,uint64,uint8,uint16,bytes32)"], [bought.purchase])
    assert keccak256(encoded) == bought.purchase.identifier
    asked = View("domainSeparator", calldata(TICKETS, "domainSeparator"), bytes, TICKETS)
    assert await stage.chain.read(asked) == domain_separator(stage.domain)
    assert await stage.chain.read(messages.rules()) == stage.rules
    keys = stage.signers[0].keys
    assert await stage.chain.read(messages.keys_of_epoch(0)) == tuple(keccak256(one) for one in keys.chain_keys)
    assert await stage.chain.read(messages.outstanding(0, 0)) == 3
    assert await stage.chain.read(messages.start_block()) == stage.start_block
    assert isinstance(await stage.chain.read(messages.payer_of(SCHEDULER.address)), str)
    assert Address(bought.purchase.buyer) == stage.payer.address
